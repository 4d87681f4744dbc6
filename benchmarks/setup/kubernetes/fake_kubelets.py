"""Simulate nodes in a real Kubernetes cluster: `python -m benchmarks.setup.kubernetes.fake_kubelets`.

The program creates nodes and foreign pods, reports the pods bound to these nodes as running, and removes pods
that are deleted. It prints `ready`, then reads commands from stdin: `end N` completes N pods that are not
foreign. At the end of stdin, it deletes everything that it has created.
"""

import argparse
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from pools.kubernetes.api_server.api import CONNECTED, Api, ApiError, Unreachable
from pools.kubernetes.api_server.credentials import parse_kubeconfig

LABEL, NAMESPACE, PREFIX = "berth.dev/benchmark", "berth-benchmark-others", "fake-"
GPU = "nvidia.com/gpu"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWAL_SECONDS, THREADS = 15.0, 8
NODE = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
POD = {"cpu": "4", "memory": "16Gi", GPU: "1"}  # requests of a foreign pod
Object = dict[str, Any]


class FakeKubelets:
    def __init__(self, kubeconfig: str) -> None:
        connection = parse_kubeconfig(kubeconfig)
        self.api = Api(connection)
        self._http = httpx.Client(
            base_url=connection.server, trust_env=False, timeout=60,
            headers={
                "Authorization": f"Bearer {connection.token}", "Content-Type": "application/merge-patch+json",
            },
            verify=ssl.create_default_context(cadata=connection.ca or None),
        )  # fmt: skip
        self._threads = ThreadPoolExecutor(THREADS)
        self._lock = threading.Lock()
        self._running: dict[str, str] = {}  # paths of running pods that are not foreign, with start times
        self._reported: set[str] = set()
        self._names: list[str] = []

    def create(self, nodes: int, foreign: int) -> None:
        self._names = [f"{PREFIX}{number:04}" for number in range(nodes)]
        self._all(self._create_node, self._names)
        self._create("/api/v1/namespaces", "Namespace", NAMESPACE)
        self._all(self._create_foreign_pod, range(foreign))
        for work in (self._renew_leases, self._follow_pods):
            threading.Thread(target=work, daemon=True).start()

    def remove(self) -> None:
        self.api.delete(f"/api/v1/namespaces/{NAMESPACE}")
        self._all(lambda name: self.api.delete(f"/api/v1/nodes/{name}"), self._names)
        self._all(lambda name: self.api.delete(f"{LEASES}/{name}"), self._names)

    def _create_node(self, name: str) -> None:
        number, now = int(name.removeprefix(PREFIX)), _now()
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastTransitionTime": now, "lastHeartbeatTime": now,
        }  # fmt: skip
        status = {
            "capacity": NODE, "allocatable": NODE, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": f"10.64.{number // 250}.{number % 250 + 1}"}],
        }  # fmt: skip
        self.api.delete(f"/api/v1/nodes/{name}")  # a killed run may have left a node that is no longer ready
        labels = {LABEL: "yes", "kubernetes.io/hostname": name, "nvidia.com/gpu.product": "H100"}
        self._create("/api/v1/nodes", "Node", name, labels, status=status)
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now("%f")}
        self._create(LEASES, "Lease", name, version="coordination.k8s.io/v1", spec=spec)

    def _create_foreign_pod(self, number: int) -> None:
        node = self._names[number % len(self._names)]
        container = {"name": "main", "image": "others:1", "resources": {"requests": POD, "limits": POD}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        self._create(f"/api/v1/namespaces/{NAMESPACE}/pods", "Pod", f"other-{number:04}", spec=spec)

    def _create(
        self, path: str, kind: str, name: str, labels: Object | None = None, *, version: str = "v1",
        **parts: Any,
    ) -> None:  # fmt: skip
        """Create the object if it does not exist."""
        metadata = {"name": name, "labels": labels or {}}
        try:
            self.api.create(path, {"apiVersion": version, "kind": kind, "metadata": metadata, **parts})
        except ApiError as error:
            if error.status != 409:
                raise

    def _renew_leases(self) -> None:
        while True:
            started = time.monotonic()
            self._all(self._renew_lease, self._names)
            time.sleep(max(0.0, RENEWAL_SECONDS - (time.monotonic() - started)))

    def _renew_lease(self, name: str) -> None:
        self._patch(f"{LEASES}/{name}", {"spec": {"renewTime": _now("%f")}})

    def end(self, count: int) -> None:
        """Complete `count` running pods with exit code 0."""
        with self._lock:
            ended = list(self._running.items())[:count]
            for path, _ in ended:
                del self._running[path]
        for path, started in ended:
            times = {"startedAt": started, "finishedAt": _now()}
            status = _status({"terminated": {"exitCode": 0, "reason": "Completed", **times}}, "Succeeded")
            self._threads.submit(self._patch, f"{path}/status", {"status": status})

    def _follow_pods(self) -> None:
        version = ""
        while True:
            try:
                if not version:
                    pods, version = self.api.list("/api/v1/pods")
                    for pod in pods:
                        self._act(pod)
                for change, pod in self.api.watch("/api/v1/pods", version, 300):
                    if change != CONNECTED:
                        version = pod["metadata"]["resourceVersion"]
                    if change in ("ADDED", "MODIFIED"):
                        self._act(pod)
            except (ApiError, Unreachable):
                version = ""

    def _act(self, pod: Object) -> None:
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if not str(spec.get("nodeName")).startswith(PREFIX):
            return
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            with self._lock:
                self._running.pop(path, None)
            self._threads.submit(self.api.delete, path, 0)
        elif status.get("phase") == "Pending" and metadata["uid"] not in self._reported:
            self._reported.add(metadata["uid"])
            self._threads.submit(self._run, path, metadata["namespace"], len(self._reported))

    def _run(self, path: str, namespace: str, number: int) -> None:
        started = _now()
        address = f"10.{128 + number // 65_536}.{number // 256 % 256}.{number % 256}"
        status = _status({"running": {"startedAt": started}}, "Running")
        self._patch(f"{path}/status", {"status": {**status, "podIP": address, "startTime": started}})
        if namespace != NAMESPACE:
            with self._lock:
                self._running[path] = started

    def _patch(self, path: str, body: Object) -> None:
        try:
            response = self._http.patch(path, content=json.dumps(body))
        except httpx.TransportError:  # an idle connection was closed
            response = self._http.patch(path, content=json.dumps(body))
        if response.status_code != 404:
            response.raise_for_status()

    def _all(self, call: Callable[[Any], None], items: Iterable[Any]) -> None:
        list(self._threads.map(call, items))


def _status(state: Object, phase: str) -> Object:
    container = {
        "name": "main", "state": state, "ready": phase == "Running", "restartCount": 0, "image": "x",
        "imageID": "",
    }  # fmt: skip
    return {"phase": phase, "containerStatuses": [container]}


def _now(fraction: str = "") -> str:
    return datetime.now(UTC).strftime(f"%Y-%m-%dT%H:%M:%S{'.' if fraction else ''}{fraction}Z")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kubeconfig", type=Path, help="Kubeconfig of an admin, with everything inline.")
    parser.add_argument("nodes", type=int)
    parser.add_argument("foreign", type=int, help="Number of foreign pods.")
    options = parser.parse_args()
    kubelets = FakeKubelets(options.kubeconfig.read_text())
    try:
        kubelets.create(options.nodes, options.foreign)
        print("ready", flush=True)
        for line in sys.stdin:
            kubelets.end(int(line.split()[1]))
    finally:
        kubelets.remove()


if __name__ == "__main__":
    main()
