"""Tests that a pool starts workloads at its ready threshold."""

import pytest

from pools.models import Node, NodePool
from projects.models import Phase
from tests.scheduler.stage import NOON, Stage
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


@pytest.fixture
def starting_pool(stage: Stage) -> NodePool:
    """Create a pool of at most four nodes with a ready threshold of two. One node is ready."""
    pool = stage.cast.pool
    Node.objects.filter(name="local-1").update(state="booting")
    pool.nodes_min, pool.ready_threshold, pool.operational_since, pool.nodes_desired = 1, 2, None, 2
    pool.save()
    return pool


@pytest.mark.shows("SKY-03", "SKY-05", "SKY-15")
def test_workloads_start_once_the_pool_is_operational(stage: Stage, starting_pool: NodePool) -> None:
    workload = stage.submit(roles=ONE)
    stage.tick(3)
    assert stage.phase(workload) == Phase.RESERVED
    assert not stage.pods(workload)
    first = present(workload.explanation)["blockers"][0]
    assert first["reason"] == "WaitingForScaleUp"
    assert first["message"] == "Pool local accepts workloads once 2 nodes are ready; 1 ready so far."
    Node.objects.update(state="ready")
    NodePool.objects.update(operational_since=NOON)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING


def test_reservation_counts_as_demand_for_the_pool(stage: Stage, starting_pool: NodePool) -> None:
    # Without this demand, the pool would look idle and never reach its ready threshold.
    stage.submit(roles=ONE)
    stage.tick(2)
    starting_pool.refresh_from_db()
    assert present(starting_pool.pressure)["queued"] >= 1
    assert starting_pool.nodes_desired == 2


def test_limit_blockers_are_reported_even_before_the_pool_is_operational(
    stage: Stage, starting_pool: NodePool
) -> None:
    stage.cast.vision.quotas.update(limit_gpu_milli=0, gpu_milli=0)
    workload = stage.submit(roles=ONE)
    stage.tick(2)
    workload.refresh_from_db()
    assert workload.reason == "ProjectLimit"


def test_reservation_on_booting_nodes_prevents_scale_down(stage: Stage) -> None:
    Node.objects.update(state="booting")
    pool = stage.cast.pool
    pool.nodes_desired = 2
    pool.save()
    stage.submit(roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    stage.tick(3, seconds=60)
    pool.refresh_from_db()
    pressure = present(pool.pressure)
    assert (pressure["queued"], pressure["gang_nodes"]) == (4000, 2)
    assert pool.nodes_desired == 2


def test_pool_below_its_ready_threshold_is_reported_once(stage: Stage, starting_pool: NodePool) -> None:
    Node.objects.all().delete()
    workload = stage.submit(roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    blockers = present(workload.explanation)["blockers"]
    assert [blocker["reason"] for blocker in blockers].count("WaitingForScaleUp") == 1
    assert blockers[0]["message"] == "Pool local accepts workloads once 2 nodes are ready; 0 ready so far."
    assert blockers[0]["numbers"]["missing"] == 4000
