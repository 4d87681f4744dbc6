"""Tests for the manifests that install Berth in a Kubernetes cluster.

`kubectl` and `helm` render them if installed, and a real cluster accepts them.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contracts.kubernetes.cluster import missing_parts, real_cluster, with_shipped_role
from tests.deploy.test_container_files import BERTH, started_module

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
FILES = ("role.yaml", "berth.yaml")
Objects = dict[tuple[str, str], dict[str, Any]]


def by_kind(text: str) -> Objects:
    """Return the objects by kind and name, without the digest in generated names."""
    documents = yaml.safe_load_all(re.sub(r"\bberth-[a-z0-9]{10}\b", "berth", text))
    return {(each["kind"], each["metadata"]["name"]): each for each in documents if each}


@pytest.fixture
def objects() -> Objects:
    return by_kind("\n---\n".join((FOLDER / name).read_text() for name in FILES))


def pod_spec(objects: Objects) -> dict[str, Any]:
    spec: dict[str, Any] = objects["Deployment", "berth"]["spec"]["template"]["spec"]
    return spec


def render(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_manifest_runs_the_processes_of_the_compose_file(objects: Objects) -> None:
    spec = pod_spec(objects)
    processes = {each["name"]: each["command"] for each in [*spec["initContainers"], *spec["containers"]]}
    assert processes == {name: service["command"] for name, service in BERTH.items()}
    assert [each["name"] for each in spec["initContainers"]] == ["migrate"]
    assert all(started_module(command) for command in processes.values())


def test_containers_are_unprivileged_and_read_secrets_from_the_secret_object(objects: Objects) -> None:
    spec = pod_spec(objects)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["serviceAccountName"] == objects["ServiceAccount", "berth"]["metadata"]["name"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"secretRef": {"name": "berth"}} in container["envFrom"]
        assert "env" not in container
    names = re.findall(r"^([A-Z_]+)=", (FOLDER / "berth.env.example").read_text(), re.MULTILINE)
    assert names == ["DATABASE_URL", "BERTH_SECRET_KEY", "BERTH_WEBHOOK_SECRET", "BERTH_METRICS_TOKEN"]


def test_kustomize_renders_all_manifests(objects: Objects) -> None:
    rendered = by_kind(render("kubectl", "kustomize", str(FOLDER)))
    assert rendered.keys() == {*objects, ("ConfigMap", "berth")}
    hosts = rendered["ConfigMap", "berth"]["data"]["BERTH_ALLOWED_HOSTS"].split(",")
    assert "localhost" in hosts, "the probes use this host"
    assert {"configMapRef": {"name": "berth"}} in pod_spec(rendered)["containers"][0]["envFrom"]


def test_helm_chart_renders_the_same_objects_as_kustomize() -> None:
    chart = by_kind(render("helm", "template", "berth", str(FOLDER / "chart"), "--namespace", "berth"))
    rendered = by_kind(render("kubectl", "kustomize", str(FOLDER)))
    del rendered["Namespace", "berth"]  # helm creates this namespace
    del chart["Deployment", "berth"]["spec"]["template"]["metadata"]["annotations"]
    assert chart == rendered


def test_helm_chart_grants_the_same_permissions_as_the_role(objects: Objects) -> None:
    text = (FOLDER / "chart" / "templates" / "role.yaml").read_text()
    plain = by_kind(text.replace("{{ .Release.Name }}", "berth").replace("{{ .Release.Namespace }}", "berth"))
    assert plain == {key: value for key, value in objects.items() if key in plain}
    assert ("ClusterRole", "berth") in plain


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := missing_parts():
        pytest.skip(f"NO REAL KUBERNETES: {missing}")
    with real_cluster(tmp_path_factory.mktemp("cluster")) as text:
        with_shipped_role(text)  # this call creates the namespace
        path = tmp_path_factory.mktemp("kubeconfig") / "config"
        path.write_text(text)
        yield path


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_real_cluster_accepts_every_object(kubeconfig: Path) -> None:
    command = ("kubectl", "--kubeconfig", str(kubeconfig), "apply", "--dry-run=server")
    accepted = render(*command, "-k", str(FOLDER))
    for name in ("deployment.apps/berth", "service/berth", "persistentvolumeclaim/berth", "configmap/berth-"):
        assert name in accepted
