"""Random clusters, simulated to the end and judged by the answer alone.

`BERTH_LAWS=20000` looks at so many clusters (default: some dozens).
"""

from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import given

from scheduler.simulator import simulate
from tests.engine.reference.clusters import MEMORY, clusters
from tests.engine.test_laws import lawfully

CYCLES = 40
QUIET = 5  # so many cycles at the end in which nothing may happen any more
Document = dict[str, Any]
# Reasons that keep work waiting although a node would have room for it.
BOUND = {
    "ProjectLimit", "DepartmentLimit", "NonPreemptibleOverQuota", "DepartmentOversold", "BehindReservation",
    "Backoff", "WaitingForGang", "Suspended", "DependencyNotMet", "Misconfigured",
}  # fmt: skip


@lawfully(20)
@given(document=clusters())
def test_it_comes_to_rest_and_nobody_waits_who_plainly_fits(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=CYCLES)
    assert [cycle["decisions"] for cycle in answer["cycles"][-QUIET:]] == [[]] * QUIET
    assert list(_waiting_in_vain(document, answer)) == []


@lawfully(40)
@given(document=clusters())
def test_devices_hold_no_more_than_one_and_never_whole_beside_shared(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=3)
    for device, parts in _devices(document, answer).items():
        assert sum(parts) <= 1 + 1e-9, (device, parts)
        assert 1 not in parts or len(parts) == 1, (device, parts)


@lawfully(40)
@given(document=clusters())
def test_what_is_free_is_what_nothing_stands_on(document: Document) -> None:
    answer = simulate(deepcopy(document), cycles=3)
    held: dict[str, float] = defaultdict(float)
    for (node, _), parts in _devices(document, answer).items():
        held[node] += sum(parts)
    for node in document["nodes"]:
        free = answer["nodes"][node["name"]]["free"]["gpu"]
        assert abs(free - (node["gpus"] - held[node["name"]])) < 1e-6


@lawfully(40)
@given(document=clusters())
def test_a_stranger_who_has_to_wait_makes_nobody_stop(document: Document) -> None:
    """It is of a project without quota or weight, and asks last. (One that finds room may be in the way of a
    move, so that somebody else's reclaim stops one more.)"""
    quotas = {pool["name"]: {"gpu": 0, "weight": 0} for pool in document["pools"]}
    document["projects"].append({"name": "strangers", "department": "d0", "quotas": quotas})
    stranger = {"name": "zz", "project": "strangers", "priority": 0, "submitted": document["now"],
                "roles": [{"name": "r", "gpu": 1}]}  # fmt: skip
    without = _stopped(simulate(deepcopy(document)))
    document["workloads"].append(stranger)
    answer = simulate(deepcopy(document))
    if answer["workloads"]["zz"]["phase"] == "pending":
        assert _stopped(answer) <= without


def _stopped(answer: Document) -> int:
    decisions = answer["cycles"][0]["decisions"]
    return sum(decision["kind"] in ("reclaim", "preempt") for decision in decisions)


def _roles(workload: Document) -> list[Document]:
    groups = workload.get("groups", [{"roles": workload.get("roles", [])}])
    return [role for group in groups for role in group["roles"]]


def _standing(document: Document, answer: Document) -> Iterator[tuple[Document, Document]]:
    """Every pod that holds something, with its role."""
    for workload in document["workloads"]:
        roles = {role["name"]: role for role in _roles(workload)}
        for pod in answer["workloads"][workload["name"]]["pods"]:
            if pod["state"] in ("running", "stopping"):
                yield roles[pod["role"]], pod


def _devices(document: Document, answer: Document) -> dict[tuple[str, int], list[float]]:
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for role, pod in _standing(document, answer):
        for device in pod["devices"]:
            found[pod["node"], device].append(_of_each(role))
    return found


def _of_each(role: Document) -> float:
    if "gpu_memory_mib" in role:
        return float(role["gpu_memory_mib"] / MEMORY)
    return float(min(1, role["gpu"]))


def _waiting_in_vain(document: Document, answer: Document) -> Iterator[str]:
    """One replica, of no topology, for which a node has whole devices, CPU and a pod free."""
    taken = _devices(document, answer)
    cpu = {node["name"]: node["cpu"] for node in document["nodes"]}
    pods = {node["name"]: node["max_pods"] for node in document["nodes"]}
    for role, pod in _standing(document, answer):
        cpu[pod["node"]] -= role.get("limit", role)["cpu"]
        pods[pod["node"]] -= 1
    for workload in document["workloads"]:
        told, roles = answer["workloads"][workload["name"]], _roles(workload)
        reasons = {blocker["reason"] for blocker in told["blockers"]}
        if told["phase"] != "pending" or len(roles) > 1 or roles[0]["min"] != 1 or "topology" in workload:
            continue
        if not reasons:
            yield f"{workload['name']} waits for no reason"
        for node in document["nodes"] if not reasons & BOUND else ():
            whole = sum(not taken[node["name"], device] for device in range(node["gpus"]))
            room = whole, cpu[node["name"]], pods[node["name"]]
            if node["pool"] in workload["pools"] and _would_hold(node, roles[0], room):
                yield f"{workload['name']} would fit on {node['name']}, but waits: {sorted(reasons)}"


def _would_hold(node: Document, role: Document, room: tuple[int, float, int]) -> bool:
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
