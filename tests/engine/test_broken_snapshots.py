"""Tests that inconsistent snapshot objects are reported and skipped, and that plans never make them worse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.decide import decide
from scheduler.engine.model import Node, Pod, PodState, Reservation, Snapshot
from scheduler.engine.plan import Place, Plan
from tests.engine.world import World, placed, steps

Break = Callable[[Snapshot], Snapshot]


def cluster() -> Snapshot:
    world = World(n1=4, n2=4).department("d", 8).project("p", "d", 6).project("q", "d", 0)
    world.running("one", "p", "n1 n1", up_to=4, cpu=2, memory=10).running("guest", "q", "n1 n1", cpu=2)
    return world.queued("new", "p", replicas=2, cpu=2).queued("wide", "p", gpus=4, cpu=2).snapshot()


def node(**change: Any) -> Break:
    def broken(snapshot: Snapshot) -> Snapshot:
        nodes = tuple(replace(n, **change) if n.name == "n1" else n for n in snapshot.nodes)
        return replace(snapshot, nodes=nodes)

    return broken


def workload(name: str, **change: Any) -> Break:
    def broken(snapshot: Snapshot) -> Snapshot:
        changed = (replace(w, **change) if w.name == name else w for w in snapshot.workloads)
        return replace(snapshot, workloads=tuple(changed))

    return broken


def pods(change: Callable[[tuple[Pod, ...]], tuple[Pod, ...]]) -> Break:
    def broken(snapshot: Snapshot) -> Snapshot:
        (one,) = (w for w in snapshot.workloads if w.name == "one")
        return workload("one", pods=change(one.pods))(snapshot)

    return broken


def with_reservation(**change: Any) -> Break:
    made = replace(Reservation("new", "worker", 0, "n2", (0,)), **change)
    return lambda snapshot: replace(snapshot, reservations=(made,))


INCONSISTENT: dict[str, tuple[Break, str]] = {
    "two whole pods on one device": (
        pods(lambda p: tuple(replace(x, devices=(0,)) for x in p)), "n1: device 0",
    ),
    "a node that lost devices": (node(gpus=2), "n1"),
    "a node that lost all its devices": (node(gpus=0), "n1"),
    "a node that lost CPUs": (node(cpu=3000), "n1: its CPU is oversold by 5 CPUs"),
    "a node that lost memory": (node(memory_mib=15), "n1: its memory is oversold by 5 MiB"),
    "a node that takes fewer pods": (node(max_pods=1), "n1: more pods"),
    "a pod on an unknown node": (pods(lambda p: (replace(p[0], node="gone"), *p[1:])), "unknown node"),
    "a pod of an unknown role": (pods(lambda p: (replace(p[0], role="chief"), *p[1:])), "no role chief"),
    "one replica twice": (pods(lambda p: (p[0], replace(p[1], index=0))), "is listed twice"),
    "a device that never existed": (pods(lambda p: (replace(p[0], devices=(9,)), *p[1:])), "n1: device 9"),
    "an unknown project": (workload("one", project="x"), "no project x"),
    "an unknown pool": (workload("new", pools=("x",)), "no pool x"),
    "a reservation for an unknown workload": (with_reservation(workload="missing"), "missing"),
    "a reservation on an unknown node": (with_reservation(node="gone"), "unknown node"),
    "a reservation for an unknown role": (with_reservation(role="chief"), "no role chief"),
    "a reservation of a missing device": (with_reservation(devices=(7,)), "n2: device 7"),
    "a reservation of an allocated device": (with_reservation(node="n1"), "n1: device 0"),
    "a missing department": (
        lambda s: replace(s, queues=tuple(q for q in s.queues if q.name != "d")),
        "no department d",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("broken", "expected"), INCONSISTENT.values(), ids=list(INCONSISTENT))
def test_inconsistent_snapshot_entries_are_reported_and_other_workloads_are_scheduled(
    broken: Break, expected: str
) -> None:
    snapshot = broken(cluster())
    plan = decide(snapshot)
    assert any(expected in note for note in plan.notes), plan.notes
    assert plan == decide(snapshot)
    check_devices(snapshot, plan)


def check_devices(snapshot: Snapshot, plan: Plan) -> None:
    """Assert that no overfull or missing device receives another pod."""
    nodes: dict[str, Node] = {n.name: n for n in snapshot.nodes}
    held: dict[tuple[str, int], int] = {}
    for workload in snapshot.workloads:
        for pod in workload.pods:
            for device in pod.devices if pod.state is not PodState.COMPLETED else ():
                held[pod.node, device] = held.get((pod.node, device), 0) + pod.milli
    before = dict(held)
    for step in steps(plan):
        for device in step.devices:
            sign = 1 if isinstance(step, Place) else -1
            held[step.node, device] = held.get((step.node, device), 0) + sign * step.milli
            if isinstance(step, Place):
                assert device < nodes[step.node].gpus
    for key, milli in held.items():
        assert milli <= max(1000, before.get(key, 0)), key


def test_workload_is_placed_on_a_healthy_node_next_to_a_broken_node() -> None:
    plan = decide(node(cpu=1000)(cluster()))
    assert set(placed(plan)["new"]) == {"n2"}
