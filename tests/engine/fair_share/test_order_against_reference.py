"""Tests that the queue order matches a simple reference on one large node."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.values.amounts import MILLI
from scheduler.engine.decide import decide
from scheduler.engine.model import Role, Snapshot
from scheduler.engine.plan import Plan
from scheduler.simulator import load
from tests.engine.reference.order import OneNodeScheduler, Pending, QueueState
from tests.engine.test_invariants import on_random_clusters

NOW = 1_800_000_000
PATHS = {"a": ("d", "a"), "b": ("d", "b"), "c": ("e", "c"), "f": ("e", "f")}

queues = st.fixed_dictionaries(
    {
        "quota": st.sampled_from([0, 1, 2, 4, 6]),
        "weight": st.sampled_from([1, 1, 0, 2]),
        "rank": st.sampled_from([0, 0, 0, 1]),
        "created": st.integers(0, 2).map(lambda n: NOW - 9000 + n),
        "limit": st.sampled_from([None, None, None, 3, 6]),
    }
)
jobs = st.fixed_dictionaries(
    {
        "project": st.sampled_from(list(PATHS)),
        "gpu": st.sampled_from([1, 1, 2, 3, 5]),
        "priority": st.sampled_from([50, 50, 90, 25]),
        "submitted": st.integers(0, 3).map(lambda n: NOW - 100 + n),
        "preemptible": st.sampled_from([True, True, True, False]),
        "runs": st.sampled_from([False, False, True]),
    }
)


@st.composite
def busy_cluster(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(st.lists(jobs, min_size=1, max_size=10))
    gpus = sum(job["gpu"] for job in drawn if job["runs"]) + draw(st.integers(0, 10))
    return {
        "format": "berth.scenario/1",
        "now": NOW,
        "nodes": [{"name": "n", "gpus": max(1, gpus)}],
        "departments": [_queue(name, draw(queues)) for name in ("d", "e")],
        "projects": [{**_queue(name, draw(queues)), "department": path[0]} for name, path in PATHS.items()],
        "workloads": [_job(f"w-{7 * number}", job) for number, job in enumerate(drawn)],
    }


def _queue(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
    quota = {"gpu": drawn["quota"], "weight": drawn["weight"], "limit": {"gpu": drawn["limit"]}}
    return {"name": name, "rank": drawn["rank"], "created": drawn["created"], "quotas": {"default": quota}}


def _job(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
    job = {key: drawn[key] for key in ("project", "priority", "submitted", "preemptible")}
    pods = [{"node": "n", "started": NOW - 50}] if drawn["runs"] else []
    return {"name": name, "roles": [{"gpu": drawn["gpu"]}], "pods": pods, **job}


def reference_order(snapshot: Snapshot, plan: Plan) -> OneNodeScheduler:
    queues = {queue.name: queue for queue in snapshot.queues}
    entries = {
        report.queue: QueueState(
            report.queue,
            (report.quota.gpu or 0) // MILLI,
            report.share.gpu // MILLI,
            queues[report.queue].pool_quotas["default"].rank,
            queues[report.queue].created,
            float("inf") if report.limit.gpu is None else report.limit.gpu // MILLI,
        )
        for report in plan.queues
    }
    node = OneNodeScheduler(snapshot.nodes[0].gpus, entries, [], {})
    size = snapshot.nodes[0].gpus
    for workload in snapshot.workloads:
        (role,) = workload.tree.children
        assert isinstance(role, Role)
        path, gpus = PATHS[workload.project], role.request.devices
        if not workload.pods and gpus > size:
            continue  # the workload is unschedulable and therefore not queued
        if not workload.pods:
            node.pending.append(
                Pending(
                    workload.name, path, gpus, workload.priority, workload.submitted, workload.preemptible
                )
            )
            continue
        node.free -= gpus
        for name in path:
            node.held[name] = node.held.get(name, 0) + gpus
            node.firm[name] = node.firm.get(name, 0) + (0 if workload.preemptible else gpus)
    return node


@pytest.mark.shows("RAI-01", "RAI-02", "RAI-03", "RAI-12", "RAI-49")
@on_random_clusters(25)
@given(document=busy_cluster())
def test_engine_starts_workloads_in_the_reference_order(document: dict[str, Any]) -> None:
    snapshot = load(document).snapshot
    plan = decide(snapshot, ["allocate"])
    node = reference_order(snapshot, plan)
    node.allocate()
    assert [bundle.workload for bundle in plan.bundles] == node.started
    queued = {rejection.workload for rejection in plan.rejections if rejection.position is not None}
    assert queued == set(node.order) - set(node.started)
