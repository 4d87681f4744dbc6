"""Tests that reclaim matches a brute-force search."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.values.amounts import MILLI
from scheduler.engine.decide import decide
from scheduler.engine.model import Role, Snapshot
from scheduler.engine.plan import Evict, Plan
from scheduler.simulator import load
from tests.engine.reference.reclaim import Cluster, PendingGang, QueueShare, RunningGang, allowed_victim_sets
from tests.engine.test_invariants import on_random_clusters

NOW = 1_800_000_000
DEPARTMENTS = {"d": ("a", "b"), "e": ("c",)}
PATHS = {project: (department, project) for department, own in DEPARTMENTS.items() for project in own}

quotas = st.fixed_dictionaries(
    {"gpu": st.sampled_from([0, 0, 1, 2, 4, None]), "weight": st.sampled_from([1, 1, 0, 3])}
)


@st.composite
def full_cluster_with_pending_gang(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one or two nodes, mostly full of small gangs, and one pending gang."""
    nodes = {f"n{i}": draw(st.integers(2, 5)) for i in range(draw(st.integers(1, 2)))}
    free, work = dict(nodes), []
    for number in range(draw(st.integers(1, 7))):
        gpus = draw(st.sampled_from([1, 1, 2, 3]))
        on = []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
            room = [node for node, left in free.items() if left >= gpus]
            if room:
                on.append(draw(st.sampled_from(room)))
                free[on[-1]] -= gpus
        if on:
            work.append(
                _workload(f"w{number}", draw(st.sampled_from("abc")), gpus, on, draw(st.integers(0, 5)) > 0)
            )
    size = draw(st.sampled_from([1, 1, 2, 3]))
    newcomer = _workload(
        "new", draw(st.sampled_from("abc")), size, [None] * draw(st.sampled_from([1, 1, 2])), True
    )
    return {
        "format": "berth.scenario/1",
        "now": NOW,
        "pools": [{"name": "default", "consolidation": {"enabled": False}}],
        "nodes": [{"name": name, "gpus": gpus} for name, gpus in nodes.items()],
        "departments": [{"name": name, "quotas": {"default": draw(quotas)}} for name in DEPARTMENTS],
        "projects": [
            {"name": name, "department": path[0], "quotas": {"default": draw(quotas)}}
            for name, path in PATHS.items()
        ],
        "workloads": [*work, newcomer],
    }


def _workload(name: str, project: str, gpus: int, on: list[Any], preemptible: bool) -> dict[str, Any]:
    pods = [{"node": node, "started": NOW - 3600} for node in on if node]
    role = {"name": "r", "replicas": len(on), "gpu": gpus}
    return {"name": name, "project": project, "preemptible": preemptible, "roles": [role], "pods": pods}


def reference_input(snapshot: Snapshot, plan: Plan) -> tuple[Cluster, PendingGang]:
    queue_shares = {
        report.queue: QueueShare(
            None if report.quota.gpu is None else report.quota.gpu // MILLI, report.share.gpu // MILLI
        )
        for report in plan.queues
    }
    gangs = [
        RunningGang(
            workload.name,
            PATHS[workload.project],
            len(workload.pods[0].devices),
            tuple(pod.node for pod in workload.pods),
            workload.preemptible,
        )
        for workload in snapshot.workloads
        if workload.pods
    ]
    new = snapshot.workloads[-1]
    (role,) = new.tree.children
    assert isinstance(role, Role)
    newcomer = PendingGang(PATHS[new.project], role.request.devices, role.min)
    return Cluster({node.name: node.gpus for node in snapshot.nodes}, queue_shares, gangs), newcomer


@pytest.mark.shows("RAI-20", "RAI-22", "RAI-24", "RAI-36")
@on_random_clusters(30)
@given(document=full_cluster_with_pending_gang())
def test_gang_is_placed_if_and_only_if_an_allowed_set_of_victims_exists(document: dict[str, Any]) -> None:
    snapshot = load(document).snapshot
    plan = decide(snapshot, ["allocate", "reclaim"])
    cluster, newcomer = reference_input(snapshot, plan)
    served = any(bundle.workload == "new" for bundle in plan.bundles)
    if cluster.fits(newcomer, ()):
        assert served
        assert not any(isinstance(step, Evict) for bundle in plan.bundles for step in bundle.steps)
        return
    fewest = next(allowed_victim_sets(cluster, newcomer), None)
    stopped = {e.workload for bundle in plan.bundles for e in bundle.evictions if e.whole}
    assert served == (fewest is not None), (fewest, cluster, newcomer)
    if fewest is not None:
        assert len(stopped) <= len(fewest) + 1
