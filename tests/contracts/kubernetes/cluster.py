"""A real Kubernetes cluster on this machine, for tests that also run on the fake cluster.

`BERTH_KUBE_TOOLS` names a folder with `up.sh` and the binaries that it starts, and
`BERTH_KUBE_WORK` the directory of a cluster that is already running. CONTRIBUTING.md describes
both.
"""

import base64
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from pools.kubernetes.api_server.api import Api, ApiError
from pools.kubernetes.api_server.credentials import parse_kubeconfig

REPOSITORY = Path(__file__).resolve().parents[3]
START_SECONDS = 240
GPU = "berth.dev/gpu"


def missing_parts() -> str:
    """Return the reason why this machine cannot start a cluster, or an empty string."""
    if _running_kubeconfig() is not None:
        return ""
    tools = os.environ.get("BERTH_KUBE_TOOLS")
    if not tools:
        return "neither BERTH_KUBE_TOOLS nor BERTH_KUBE_WORK is set"
    if not Path(tools, "up.sh").exists():
        return f"{tools} has no up.sh"
    if os.geteuid() != 0:
        return "starting a cluster requires root"
    if not Path("/sys/fs/cgroup/memory").is_dir():
        return "the cluster's kubelets require version 1 of control groups"
    return ""


@contextmanager
def real_cluster(work: Path) -> Iterator[str]:
    """Yield a self-contained kubeconfig of a cluster with two nodes."""
    if (kubeconfig := _running_kubeconfig()) is not None:
        yield flatten(kubeconfig)
        return
    tools, environ = Path(os.environ["BERTH_KUBE_TOOLS"]), {**os.environ, "WORK": str(work), "NODES": "2"}
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-C", str(work), "-xJf", str(tools / "binaries.tar.xz")], check=True)
    script = str(tools / "up.sh")
    try:
        subprocess.run(["bash", script, "up"], env=environ, check=True, timeout=START_SECONDS)
        yield flatten(work / "run" / "kubeconfig")
    finally:
        subprocess.run(["bash", script, "down"], env=environ, check=False, timeout=START_SECONDS)


@contextmanager
def nodes_without_machines(api: Api, names: list[str], labels: dict[str, str]) -> Iterator[None]:
    """Create nodes that have two devices but no machine behind them. They stay ready for about a minute."""
    path, now = "/api/v1/nodes", f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110", GPU: "2"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now, "lastHeartbeatTime": now}
    status = {
        "capacity": resources, "allocatable": resources, "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": "10.64.0.1"}],
    }  # fmt: skip
    try:
        for name in names:
            metadata = {"name": name, "labels": labels}
            api.create(path, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
        yield
    finally:
        for name in names:
            api.delete(f"{path}/{name}")


def set_gpus(kubeconfig: str, node: str, count: int) -> None:
    """Make a node advertise GPUs that do not exist, as a device plugin would."""
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    change = {"op": "add", "path": path, "value": str(count)}
    patch(kubeconfig, f"/api/v1/nodes/{node}/status", change)


def patch(kubeconfig: str, path: str, *changes: dict[str, Any]) -> None:
    """Apply a JSON patch to an object."""
    connection = parse_kubeconfig(kubeconfig)
    response = httpx.patch(
        connection.server + path,
        content=json.dumps(changes),
        headers={
            "Authorization": f"Bearer {connection.token}", "Content-Type": "application/json-patch+json",
        },
        verify=ssl.create_default_context(cadata=connection.ca), trust_env=False,
    )  # fmt: skip
    response.raise_for_status()


def with_shipped_role(kubeconfig: str) -> str:
    """Return a kubeconfig for a service account with exactly the role in `deploy/kubernetes`."""
    api = Api(parse_kubeconfig(kubeconfig))
    for document in yaml.safe_load_all((REPOSITORY / "deploy" / "kubernetes" / "role.yaml").read_text()):
        _create(api, document)
    accounts = "/api/v1/namespaces/berth/serviceaccounts"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    token = api.create(f"{accounts}/berth/token", request)["status"]["token"]
    api.close()
    config = yaml.safe_load(kubeconfig)
    config["users"][0]["user"] = {"token": token}
    return str(yaml.safe_dump(config))


def _create(api: Api, document: dict[str, Any]) -> None:
    """Create an object unless it exists. Replace an existing role, which may be from another version."""
    group = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
    namespace = document["metadata"].get("namespace")
    place = f"{group}/namespaces/{namespace}" if namespace else group
    if document["kind"] == "ClusterRole":
        api.delete(f"{place}/clusterroles/{document['metadata']['name']}")
    try:
        api.create(f"{place}/{document['kind'].lower()}s", document)
    except ApiError as error:
        if error.status != 409:
            raise


def flatten(kubeconfig: Path) -> str:
    """Return the kubeconfig with its certificate authority inline."""
    document = yaml.safe_load(kubeconfig.read_text())
    for entry in document["clusters"]:
        if path := entry["cluster"].pop("certificate-authority", None):
            content = base64.b64encode(Path(path).read_bytes()).decode()
            entry["cluster"]["certificate-authority-data"] = content
    text = yaml.safe_dump(document)
    parse_kubeconfig(text)
    return str(text)


def _running_kubeconfig() -> Path | None:
    work = os.environ.get("BERTH_KUBE_WORK")
    kubeconfig = Path(work, "run", "kubeconfig") if work else None
    return kubeconfig if kubeconfig is not None and kubeconfig.exists() else None
