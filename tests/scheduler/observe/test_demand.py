"""Tests that elastic pools scale up with demand for the scarcest resource."""

from typing import Any

import pytest

from pools import services
from pools.models import Node, NodePool
from projects.models import Phase, Workload
from tests.scheduler.stage import Stage
from tests.support.present import present


@pytest.fixture
def empty_pool(stage: Stage) -> NodePool:
    """Create a pool without nodes that may grow to four nodes of 2 GPUs, 8 CPUs and 16 GiB each."""
    Node.objects.all().delete()
    NodePool.objects.update(operational_since=None, nodes_desired=0)
    stage.cast.pool.refresh_from_db()
    return stage.cast.pool


def nodes_desired(pool: NodePool) -> int:
    pool.refresh_from_db()
    return pool.nodes_desired


def explanation_of(workload: Workload) -> dict[str, Any]:
    workload.refresh_from_db()
    explanation: dict[str, Any] = present(workload.explanation)
    return explanation


def test_workload_without_gpus_scales_up_an_empty_pool(stage: Stage, empty_pool: NodePool) -> None:
    workload = stage.submit(roles=[{"gpu": 0}])
    stage.tick(2)
    assert nodes_desired(empty_pool) == 1
    blockers = [blocker["reason"] for blocker in explanation_of(workload)["blockers"]]
    assert "WaitingForScaleUp" in blockers
    stage.node(0)
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING


@pytest.mark.parametrize(
    ("role", "nodes", "binding"),
    [
        ({"replicas": 2, "gpu": 1, "cpu": 5}, 2, "cpu"),
        ({"replicas": 3, "cpu": 5}, 3, "cpu"),
        ({"replicas": 3, "gpu": 0.5, "memory_mib": 12_000}, 3, "memory_mib"),
        ({"replicas": 3, "cpu": 1, "limit": {"cpu": 5}}, 3, "cpu"),
        ({"replicas": 3, "gpu": 1}, 2, "gpu"),
    ],
)
def test_resource_that_needs_the_most_nodes_determines_the_pool_size(
    stage: Stage, empty_pool: NodePool, role: dict[str, object], nodes: int, binding: str
) -> None:
    stage.submit(roles=[role])
    stage.tick(2)
    assert (nodes_desired(empty_pool), present(empty_pool.pressure)["binding"]) == (nodes, binding)


@pytest.mark.heavy
def test_node_that_runs_cpu_only_workloads_is_not_idle(stage: Stage, empty_pool: NodePool) -> None:
    stage.node(0)
    NodePool.objects.update(nodes_desired=1)
    workload = stage.submit(roles=[{"cpu": 1}])
    stage.tick(20, seconds=30)
    assert stage.phase(workload) == Phase.RUNNING
    assert nodes_desired(empty_pool) == 1
    assert empty_pool.idle_since is None


@pytest.mark.heavy
def test_nodes_with_all_cpus_allocated_are_not_underutilized(stage: Stage, empty_pool: NodePool) -> None:
    # One of eight GPUs is allocated, and the pods' CPU limits fill every node.
    for ordinal in range(4):
        stage.node(ordinal)
    NodePool.objects.update(nodes_desired=4)
    stage.submit(roles=[{"name": "a", "gpu": 1, "cpu": 1, "limit": {"cpu": 8}}])
    stage.submit("train-2", roles=[{"replicas": 3, "cpu": 1, "limit": {"cpu": 8}}])
    stage.tick(20, seconds=30)
    assert nodes_desired(empty_pool) == 4


@pytest.mark.heavy
def test_elastic_workload_scales_up_onto_added_nodes(stage: Stage, empty_pool: NodePool) -> None:
    stage.node(0)
    NodePool.objects.update(nodes_desired=1)
    workload = stage.submit(roles=[{"name": "trainer", "min": 2, "max": 6, "gpu": 1}])
    stage.tick(3)
    assert len(stage.pods(workload, "running")) == 2
    assert nodes_desired(empty_pool) == 3
    stage.node(1)
    stage.tick(3)
    assert len(stage.pods(workload, "running")) == 4
    assert nodes_desired(empty_pool) == 3
    stage.node(2)
    stage.tick(3)
    assert len(stage.pods(workload, "running")) == 6
    stage.tick(20, seconds=30)
    assert (nodes_desired(empty_pool), len(stage.pods(workload, "running"))) == (3, 6)


@pytest.mark.heavy
def test_drained_pool_is_not_reported_as_scaling_up(stage: Stage, empty_pool: NodePool) -> None:
    workload = stage.submit(roles=[{"gpu": 1}], pools=["local"])
    NodePool.objects.update(expires_at=stage.clock.now(), operational_since=stage.clock.now())
    stage.tick(2)
    blockers = [blocker["reason"] for blocker in explanation_of(workload)["blockers"]]
    assert blockers[0] == "NodesUnavailable"
    assert "WaitingForScaleUp" not in blockers
    assert nodes_desired(empty_pool) == 0


def test_workload_stays_schedulable_while_provisioning_is_stopped(stage: Stage, empty_pool: NodePool) -> None:
    # The workload keeps its queue position and starts once an admin lets the pool order nodes again.
    NodePool.objects.update(boot_failures=5, boot_failure_limit=5)
    workload = stage.submit(roles=[{"gpu": 1}])
    stage.tick(2)
    explanation = explanation_of(workload)
    assert (workload.reason, explanation["queue_position"]) == ("NodesUnavailable", 1)
    services.retry_pool(actor=stage.cast.alice, pool=empty_pool)
    stage.tick(2)
    assert nodes_desired(empty_pool) == 1
    assert "WaitingForScaleUp" in [blocker["reason"] for blocker in explanation_of(workload)["blockers"]]


def test_scale_up_is_the_first_reason_if_added_nodes_would_suffice(stage: Stage) -> None:
    NodePool.objects.update(nodes_max=3)
    stage.submit("borrows", roles=[{"gpu": 1, "replicas": 4}])
    stage.tick(2)
    workload = stage.submit("waits", roles=[{"gpu": 1}])
    stage.tick()
    explanation = explanation_of(workload)
    assert (workload.reason, workload.message) == (
        "WaitingForScaleUp", "The pool adds 1 node for its pending workloads.",
    )  # fmt: skip
    others = {blocker["reason"] for blocker in explanation["blockers"][1:]}
    assert {"WouldExceedFairShare", "WaitingForCapacity"} <= others
    assert explanation["expected_start_reason"] == (
        "the workload is waiting for nodes, and their boot time is unknown"
    )
