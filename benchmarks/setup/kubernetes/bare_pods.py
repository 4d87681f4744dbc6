"""Start pods in a Kubernetes cluster without Berth, as a baseline."""

import copy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.setup.kubernetes.program_cpu import cpu_by_program, per_pod

PATIENCE_SECONDS = 1800
INSTALLATION_LABEL, GPU = "berth.dev/installation", "nvidia.com/gpu"
Manifest = dict[str, Any]


def minimal_pods(selector: Mapping[str, str], image: str, count: int) -> list[Manifest]:
    """Return manifests of pods without resource requests, for any node with these labels."""
    spec = {
        "nodeSelector": selector, "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": image}],
    }  # fmt: skip
    return [{**_manifest("Pod", f"bare-{number}"), "spec": spec} for number in range(count)]


def same_pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return copies of Berth's pods for the same nodes, without GPU requests.

    The GPUs of the nodes are already allocated to Berth's pods. Berth does not adopt the copies, because
    their installation label is different.
    """
    pods = copy.deepcopy(list(manifests))
    for pod in pods:
        pod["metadata"]["labels"][INSTALLATION_LABEL] = "benchmark"
        for amounts in pod["spec"]["containers"][0]["resources"].values():
            amounts.pop(GPU, None)
    return pods


def unscheduled_pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return copies of Berth's pods that no scheduler binds and no kubelet runs."""
    pods = same_pods(manifests)
    for pod in pods:
        pod["spec"]["schedulerName"] = "none"
    return pods


def bound_pods(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return copies of Berth's pods that are bound to the same nodes without a scheduler."""
    pods = same_pods(manifests)
    for pod in pods:
        required = pod["spec"].pop("affinity")["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        (by_name,) = required["nodeSelectorTerms"][0]["matchFields"]
        (pod["spec"]["nodeName"],) = by_name["values"]
    return pods


def create_bare_pods(
    kubeconfig: str, pods: Sequence[Manifest], threads: int, *, are_run: bool = True
) -> dict[str, Any]:
    """Create the pods in parallel threads, and return how many were created per second.

    With `are_run`, also return how many started to run per second. Wait until the pods are deleted, because
    their deletion would slow down the next step.
    """
    from pools.kubernetes.api_server.api import Api
    from pools.kubernetes.api_server.credentials import parse_kubeconfig

    api = Api(parse_kubeconfig(kubeconfig))
    namespace = f"bare-{time.monotonic_ns()}"
    place, count = f"/api/v1/namespaces/{namespace}", len(pods)
    api.create("/api/v1/namespaces", _manifest("Namespace", namespace))
    manifests = [{**pod, "metadata": {**pod["metadata"], "namespace": namespace}} for pod in pods]
    _, version = api.list(f"{place}/pods")
    before = cpu_by_program()
    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(api.create, f"{place}/pods"), manifests))
    created = time.monotonic() - began
    if are_run:
        _watch_pods(api, f"{place}/pods", version, count, _is_running)
    ran, programs = time.monotonic() - began, cpu_by_program() - before
    version = api.list(f"{place}/pods")[1]
    api.delete(place)
    _watch_pods(api, f"{place}/pods", version, count, lambda change, pod: change == "DELETED")
    api.close()
    return {
        "pods": count, "created_per_s": round(count / created, 1),
        **({"pods_per_s": round(count / ran, 1)} if are_run else {}),
        "cpu_ms_per_pod": per_pod(programs, count),
    }  # fmt: skip


def _watch_pods(
    api: Any, path: str, version: str, count: int, matches: Callable[[str, dict[str, Any]], bool]
) -> None:
    """Watch until `count` pods have matched. Exit with an error at the timeout."""
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
