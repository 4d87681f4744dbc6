"""Tests that simulate random clusters to the end and check only the final state.

`BERTH_RANDOM_CLUSTERS=20000` sets the number of clusters (default: a few dozen).
"""

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import given

from scheduler.simulator import simulate
from tests.engine.reference.clusters import MEMORY, clusters
from tests.engine.test_invariants import on_random_clusters

CYCLES = 40
QUIET_CYCLES = 5  # number of final cycles without any decision
Document = dict[str, Any]
# Reasons that keep a workload pending although a node has room for it.
BOUND = {
    "ProjectLimit", "DepartmentLimit", "NonPreemptibleOverQuota", "DepartmentOversold", "BehindReservation",
    "Backoff", "WaitingForGang", "Suspended", "DependencyNotMet", "Misconfigured",
}  # fmt: skip


@on_random_clusters(4)
@given(document=clusters())
def test_simulation_settles_and_places_every_workload_that_fits(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=CYCLES)
    assert [cycle["decisions"] for cycle in answer["cycles"][-QUIET_CYCLES:]] == [[]] * QUIET_CYCLES
    assert list(_pending_but_fitting(document, answer)) == []


@on_random_clusters(4)
@given(document=clusters())
def test_no_device_is_oversubscribed_or_both_shared_and_exclusive(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=3)
    for device, parts in _devices(document, answer).items():
        assert sum(parts) <= 1 + 1e-9, (device, parts)
        assert 1 not in parts or len(parts) == 1, (device, parts)


@on_random_clusters(4)
@given(document=clusters())
def test_reported_free_gpus_are_not_allocated_to_any_pod(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=3)
    held: dict[str, float] = defaultdict(float)
    for (node, _), parts in _devices(document, answer).items():
        held[node] += sum(parts)
    for node in document["nodes"]:
        free = answer["nodes"][node["name"]]["free"]["gpu"]
        assert abs(free - (node["gpus"] - held[node["name"]])) < 1e-6


@on_random_clusters(4)
@given(document=clusters())
def test_pending_workload_without_quota_causes_no_evictions(document: Document) -> None:
    # The workload is last in the queue because its project has neither quota nor weight. A placed workload
    # may block a move, so that another reclaim evicts one more.
    quotas = {pool["name"]: {"gpu": 0, "weight": 0} for pool in document["pools"]}
    document["projects"].append({"name": "strangers", "department": "d0", "quotas": quotas})
    stranger = {"name": "zz", "project": "strangers", "priority": 0, "submitted": document["now"],
                "roles": [{"name": "r", "gpu": 1}]}  # fmt: skip
    without = _evictions(simulate(deepcopy(document)))
    document["workloads"].append(stranger)
    answer = simulate(deepcopy(document))
    if answer["workloads"]["zz"]["phase"] == "pending":
        assert _evictions(answer) <= without


def _evictions(answer: Document) -> int:
    decisions = answer["cycles"][0]["decisions"]
    return sum(decision["kind"] in ("reclaim", "preempt") for decision in decisions)


def _roles(workload: Document) -> list[Document]:
    groups = workload.get("groups", [{"roles": workload.get("roles", [])}])
    return [role for group in groups for role in group["roles"]]


def _held_pods(document: Document, answer: Document) -> Iterator[tuple[Document, Document]]:
    for workload in document["workloads"]:
        roles = {role["name"]: role for role in _roles(workload)}
        for pod in answer["workloads"][workload["name"]]["pods"]:
            if pod["state"] in ("running", "stopping"):
                yield roles[pod["role"]], pod


def _devices(document: Document, answer: Document) -> dict[tuple[str, int], list[float]]:
    parts: dict[tuple[str, int], list[float]] = defaultdict(list)
    for role, pod in _held_pods(document, answer):
        for device in pod["devices"]:
            parts[pod["node"], device].append(_requested_devices(role))
    return parts


def _requested_devices(role: Document) -> float:
    if "gpu_memory_mib" in role:
        return float(role["gpu_memory_mib"] / MEMORY)
    return float(min(1, role["gpu"]))


def _pending_but_fitting(document: Document, answer: Document) -> Iterator[str]:
    devices = _devices(document, answer)
    cpu = {node["name"]: node["cpu"] for node in document["nodes"]}
    pods = {node["name"]: node["max_pods"] for node in document["nodes"]}
    for role, pod in _held_pods(document, answer):
        cpu[pod["node"]] -= role.get("limit", role)["cpu"]
        pods[pod["node"]] -= 1
    for workload in document["workloads"]:
        outcome, roles = answer["workloads"][workload["name"]], _roles(workload)
        reasons = {blocker["reason"] for blocker in outcome["blockers"]}
        if outcome["phase"] != "pending" or len(roles) > 1 or roles[0]["min"] != 1 or "topology" in workload:
            continue
        if not reasons:
            yield f"{workload['name']} is pending without a reason"
        for node in document["nodes"] if not reasons & BOUND else ():
            whole = sum(not devices[node["name"], device] for device in range(node["gpus"]))
            room = whole, cpu[node["name"]], pods[node["name"]]
            if node["pool"] in workload["pools"] and _fits_on_node(node, roles[0], room):
                yield f"{workload['name']} would fit on {node['name']} but is pending: {sorted(reasons)}"


def _fits_on_node(node: Document, role: Document, room: tuple[int, float, int]) -> bool:
    whole, cpu, pods = room
    gpu = role.get("gpu", 0)
    devices = gpu if gpu >= 1 else role.get("gpu_devices", 1 if gpu or "gpu_memory_mib" in role else 0)
    return (
        node["state"] == "ready"
        and node["gpu_model"] in role.get("gpu_models", [node["gpu_model"]])
        and (not node["taints"] or "tolerations" in role)
        and role.get("node_selector", {}).items() <= node["labels"].items()
        and whole >= devices
        and cpu >= role.get("limit", role)["cpu"]
        and pods >= 1
    )
