"""Pods with scripted behaviour on Kubernetes, on a fake API server and on a real cluster."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.cluster import Clusters, PoolAccess
from pools.kubernetes.files.store import CopyLimits
from pools.kubernetes.runtime import KubernetesRuntime
from pools.kubernetes.settings import KubernetesSettings, kubernetes_settings
from pools.runtimes.base import PodSpec, Runtime
from tests.contracts.pods import ended, order, poll_until
from tests.fakes.kubernetes import FakeCluster, serve
from tests.fakes.kubernetes.files import FakeFiles

POOL = "prod"
IMAGE = "berth.test/busybox:1"


class KubernetesStage:
    """A Kubernetes runtime on one cluster. Each stage is a separate installation."""

    # Container runtimes pass on complete lines only, and replace CR LF by LF.
    line_end, line_break, measures_usage, has_channels = b"\n", b"\n", False, False
    patience = 60.0  # time limit for slow machines

    def __init__(self, root: Path, connection: Connection, settings: KubernetesSettings, node: str) -> None:
        self.root, self._connection, self._settings, self._node = root, connection, settings, node
        self.installation = f"test-{uuid.uuid4().hex[:8]}"
        self.limits = CopyLimits()  # limits on the files that are copied from pods
        self._all: list[Clusters] = []
        self.runtime: Any = None
        self.restart()

    def restart(self) -> Runtime:
        clusters = Clusters(lambda: self.installation, self.patience)
        self._all.append(clusters)
        access: dict[str, PoolAccess] = {}
        self.runtime = KubernetesRuntime(self.root, lambda: access, lambda: self.limits)
        clusters.set_callbacks(self.runtime.notify, self.runtime.record_deletion)
        access[POOL] = PoolAccess(clusters.get(self._connection), self._settings)
        self.access = access
        return self.runtime

    def noticing(self, pod_id: str) -> PodSpec:
        raise NotImplementedError("notices are not sent")

    def finish_noticing(self, pod_id: str) -> None:
        raise NotImplementedError("notices are not sent")

    def order(self, pod_id: str, *command: str, **changes: object) -> PodSpec:
        values: dict[str, object] = {
            "pool": POOL, "image": IMAGE, "image_pull_policy": "never", "instance_id": f"{self._node}/1",
            "cpu_milli": 10, "memory_mib": 16,
        }  # fmt: skip
        return order(pod_id, *command, **{**values, **changes})

    @property
    def namespace(self) -> str:
        return f"berth-{self.installation}-vision"

    @property
    def clusters(self) -> Clusters:
        return self._all[-1]

    def close(self) -> None:
        for clusters in self._all:
            clusters.close()


class FakeKubernetesStage(KubernetesStage):
    def __init__(self, root: Path, cluster: FakeCluster, url: str) -> None:
        self.cluster, self.files = cluster, FakeFiles(root.parent / "volumes")
        cluster.files = self.files
        cluster.add_node("node-1", gpus=8)
        super().__init__(root, Connection(url), KubernetesSettings(), "node-1")

    def long(self, pod_id: str) -> PodSpec:
        return self.order(pod_id, "sleep", "inf")

    def stubborn(self, pod_id: str) -> PodSpec:
        self.cluster.stubborn.add(pod_id)
        return self.order(pod_id, "sleep", "inf")

    def end_pod(self, pod_id: str, exit_code: int) -> None:
        self.cluster.end_pod(pod_id, exit_code)

    def crash_pod(self, pod_id: str, number: int) -> None:
        self.cluster.end_pod(pod_id, 128 + number)

    def write_output(self, pod_id: str, data: bytes) -> None:
        self.cluster.write(pod_id, data)

    def work(self, pod_id: str) -> None:
        raise NotImplementedError("usage is not measured")

    def wait_out_grace_period(self, seconds: int) -> None:
        # Real time passes.
        pass


class RealKubernetesStage(KubernetesStage):
    """Runs pods as shells that read commands from a pipe in their workspace on this machine."""

    has_channels = True
    SHELL = 'busybox mkfifo "do-$NAME"; while :; do . "$BERTH_WORKSPACE/do-$NAME"; done'

    def __init__(self, root: Path, connection: Connection, *, keeps_workspaces: bool = True) -> None:
        self.workspaces = root.parent / "workspaces"
        self.workspaces.mkdir()
        settings: dict[str, Any] = {"gpu_resource": "berth.dev/gpu"}
        if keeps_workspaces:
            settings["workspaces"] = {"host_path": str(self.workspaces)}
        super().__init__(root, connection, kubernetes_settings(settings), "node-1")

    def long(self, pod_id: str) -> PodSpec:
        return self.order(pod_id, "sh", "-c", self.SHELL, env={"NAME": pod_id, "RANK": "0"})

    def stubborn(self, pod_id: str) -> PodSpec:
        return self.order(pod_id, "sh", "-c", f"trap '' TERM; {self.SHELL}", env={"NAME": pod_id})

    def end_pod(self, pod_id: str, exit_code: int) -> None:
        self._do(pod_id, f"exit {exit_code}")

    def crash_pod(self, pod_id: str, number: int) -> None:
        self._do(pod_id, f"kill -{number} $$; sleep 60")

    def write_output(self, pod_id: str, data: bytes) -> None:
        size = self.runtime.read_log(pod_id, 0, 0).size
        escaped = "".join(f"\\{byte:03o}" for byte in data)
        self._do(pod_id, f"printf '{escaped}'")
        poll_until(lambda: self.runtime.read_log(pod_id, 0, 0).size >= size + len(data))

    def work(self, pod_id: str) -> None:
        raise NotImplementedError("usage is not measured")

    def wait_out_grace_period(self, seconds: int) -> None:
        # Real time passes.
        pass

    def sweep(self, admin: Api) -> None:
        """Stop every pod and delete the installation's namespace with the permissions of a cluster admin."""
        for pod_id in self.runtime.list_pods():
            self.runtime.stop(pod_id, 0)
        for pod_id in self.runtime.list_pods():
            ended(self.runtime, pod_id)
            self.runtime.forget(pod_id)
        admin.delete(f"/api/v1/namespaces/{self.namespace}")
        admin.close()

    def _do(self, pod_id: str, script: str) -> None:
        pipe = self.workspaces / "train-1" / f"do-{pod_id}"
        poll_until(pipe.exists)
        with pipe.open("w") as file:
            file.write(script + "\n")


@contextmanager
def fake_kubernetes_stage(root: Path) -> Iterator[FakeKubernetesStage]:
    cluster = FakeCluster()
    with serve(cluster) as url:
        stage = FakeKubernetesStage(root, cluster, url)
        try:
            yield stage
        finally:
            stage.close()
