"""Start pods in a Kubernetes cluster without Berth, as a baseline."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

PATIENCE_SECONDS = 1800


def create_bare_pods(kubeconfig: str, selector: Mapping[str, str], image: str, count: int) -> dict[str, Any]:
    """Create pods one after the other from one thread.

    Return how many were created, and how many began to run, per second. Wait until they are deleted, which
    would slow down the next step.
    """
    from pools.kubernetes.api import Api
    from pools.kubernetes.credentials import parse_kubeconfig

    api = Api(parse_kubeconfig(kubeconfig))
    namespace = f"bare-{time.monotonic_ns()}"
    place = f"/api/v1/namespaces/{namespace}"
    api.create("/api/v1/namespaces", _manifest("Namespace", namespace))
    spec = {
        "nodeSelector": selector, "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": image}],
    }  # fmt: skip
    _, version = api.list(f"{place}/pods")
    began, cpu = time.monotonic(), time.process_time()
    for number in range(count):
        pod = _manifest("Pod", f"bare-{number}", namespace=namespace)
        api.create(f"{place}/pods", {**pod, "spec": spec})
    created, used = time.monotonic() - began, time.process_time() - cpu
    _watch_pods(api, f"{place}/pods", version, count, _is_running)
    ran = time.monotonic() - began
    version = api.list(f"{place}/pods")[1]
    api.delete(place)
    _watch_pods(api, f"{place}/pods", version, count, lambda change, pod: change == "DELETED")
    api.close()
    return {
        "pods": count, "created_per_s": round(count / created, 1), "pods_per_s": round(count / ran, 1),
        "cpu_s": round(used, 1),
    }  # fmt: skip


def _watch_pods(
    api: Any, path: str, version: str, count: int, matches: Callable[[str, dict[str, Any]], bool]
) -> None:
    """Wait until this many pods have matched."""
    names: set[str] = set()
    for change, pod in api.watch(path, version, PATIENCE_SECONDS):
        if change in ("ADDED", "MODIFIED", "DELETED") and matches(change, pod):
            names.add(pod["metadata"]["name"])
            if len(names) == count:
                return
    sys.exit(f"only {len(names)} of {count} pods changed")


def _is_running(_: str, pod: dict[str, Any]) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Running")


def _manifest(kind: str, name: str, **metadata: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}
