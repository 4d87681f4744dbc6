"""The Kubernetes cluster `prod` of the journeys, and users who create a pool on it.

The cluster has real kubelets, containers, networks and a scheduler. Its nodes advertise GPUs that do not
exist.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.nodes import INSTALLATION_LABEL, POOL_LABEL
from tests.contracts.kubernetes.cluster import GPU
from tests.images.registry import PASSWORD, USER, Registry
from tests.journeys.command import Terminal, sign_in
from tests.journeys.installation import Installation


@dataclass
class Prod:
    """A Kubernetes cluster.

    `admin` is an admin's kubeconfig, `api` is the admin's client, and `config` is a kubeconfig with the
    shipped role.
    """

    admin: str
    api: Api
    config: Path
    image: str
    workspaces: Path

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects in project namespaces."""
        listed, _ = self.api.list(f"/api/v1/{kind}")
        return [item for item in listed if item["metadata"]["namespace"].startswith("berth-")]

    def add_foreign_pod(self, name: str, node: str) -> None:
        """Run a pod of another Berth installation whose pool has the same name."""
        labels = {INSTALLATION_LABEL: "another", POOL_LABEL: "prod"}
        resources = {"limits": {GPU: "1", "cpu": "100m", "memory": "32Mi"}}
        container = {
            "name": "c", "image": "berth.test/busybox:1", "imagePullPolicy": "Never",
            "command": ["sleep", "3600"], "resources": resources,
        }  # fmt: skip
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        self.api.create("/api/v1/namespaces/default/pods", pod)


@dataclass
class Users:
    admin: Terminal
    dave: Terminal
    grace: Terminal


def sign_in_users(berth: Installation, registry: Registry, folder: Path) -> Users:
    """Sign users in and set the secrets of their projects."""
    admin, carol, dave, grace = (
        sign_in(berth, name, folder / name) for name in ("admin", "carol", "dave", "grace")
    )
    # The registry requires a login, which the cluster gets from a secret of the project.
    for lead, project in ((carol, "vision"), (admin, "ads")):
        login = ("--registry", registry.address, "-u", USER)
        lead.berth("secret", "set", "registry", "-p", project, *login, stdin=PASSWORD)
        lead.berth("secret", "set", "token", "-p", project, stdin="swordfish")
    return Users(admin, dave, grace)


def create_pool(admin: Terminal, prod: Prod) -> None:
    settings = f"{{gpu_resource: {GPU}, workspaces: {{host_path: {prod.workspaces}}}}}"
    options = (
        "--provider", "kubernetes", "--kubeconfig", str(prod.config), "--nodes", "2", "--gpus-per-node", "3",
        "--set", f"provider_settings={settings}", "--set", "reconcile_tick=1",
    )  # fmt: skip
    admin.berth("pool", "create", "prod", *options)
    for owner, gpus in (
        (["research", "--department"], 2),
        (["product", "--department"], 2),
        (["vision"], 2),
        (["ads"], 2),
    ):
        admin.berth("quota", "set", *owner, "--pool", "prod", "--gpu", str(gpus))
