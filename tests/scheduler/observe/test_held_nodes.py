"""Tests for nodes and quota held for the longest-pending workload: history, snapshot and messages."""

from datetime import timedelta
from typing import Any

import pytest

from pools.models import NodePool
from scheduler.loop.observe.runtimes import REFRESH_AFTER
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache, observe
from tests import factories
from tests.scheduler.stage import Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]
BOTH = [{"name": "worker", "replicas": 1, "gpu": 2}]


@pytest.fixture
def small_stage(stage: Stage) -> Stage:
    """Return a stage with one node of two GPUs that cannot add another node."""
    NodePool.objects.filter(pk=stage.cast.pool.pk).update(nodes_min=1, nodes_max=1)
    stage.cast.pool.nodes.filter(ordinal=1).delete()
    stage.cast.research.quotas.update(gpu_milli=2000)
    stage.cast.vision.quotas.update(gpu_milli=2000)
    return stage


def complete(stage: Stage, *runtimes: int, **columns: Any) -> None:
    """Create completed workloads of the first project with these runtimes in seconds, oldest first."""
    for number, seconds in enumerate(runtimes):
        ended = stage.clock.now() - timedelta(hours=1) + timedelta(minutes=number)
        row = {"phase": "completed", "started_at": ended - timedelta(seconds=seconds), "ended_at": ended}
        factories.workload(stage.cast.vision, f"ended-{number}", **{**row, **columns})


def expected(stage: Stage, cache: ObservationCache | None = None) -> dict[str, int | None]:
    queues = observe(stage.clock.now(), SpecCache(), cache).snapshot.queues
    return {queue.name: queue.expected_runtime for queue in queues if queue.parent is not None}


def test_expected_runtime_is_the_80th_percentile_of_the_projects_completed_runs(
    stage: Stage,
) -> None:
    complete(stage, 300, 100, 200, 900, 400)
    assert expected(stage)["vision"] == 400
    assert expected(stage)["ads"] is None


@pytest.mark.heavy
def test_runtime_estimate_uses_only_the_last_fifty_runs(stage: Stage) -> None:
    complete(stage, *[9000] * 5, *[60] * 50)
    assert expected(stage)["vision"] == 60


@pytest.mark.parametrize("columns", [{"phase": "failed"}, {"kind": "interactive"}, {"kind": "service"}])
def test_runtime_estimate_excludes_failed_runs_sessions_and_services(
    stage: Stage, columns: dict[str, str]
) -> None:
    complete(stage, 100, 100, 100, 100, 100, **columns)
    assert expected(stage)["vision"] is None


@pytest.mark.heavy
def test_four_runs_are_too_few_for_a_runtime_estimate(stage: Stage) -> None:
    complete(stage, 100, 100, 100, 100)
    assert expected(stage)["vision"] is None


@pytest.mark.heavy
def test_no_runtime_is_estimated_for_a_pool_that_never_holds_nodes(stage: Stage) -> None:
    NodePool.objects.update(reservation_after=None)
    complete(stage, 100, 100, 100, 100, 100)
    assert expected(stage)["vision"] is None


@pytest.mark.heavy
def test_expected_runtimes_are_refreshed_after_a_few_minutes(stage: Stage) -> None:
    cache = ObservationCache()
    assert expected(stage, cache)["vision"] is None
    complete(stage, 100, 100, 100, 100, 100)
    assert expected(stage, cache)["vision"] is None
    stage.clock.advance(REFRESH_AFTER.total_seconds())
    assert expected(stage, cache)["vision"] == 100


def test_nodes_are_held_for_a_large_workload_after_ten_minutes(small_stage: Stage) -> None:
    small_stage.submit("first", roles=ONE)
    small_stage.tick(2, seconds=10)
    large = small_stage.submit("large", roles=BOTH)
    small_stage.tick()
    small_stage.clock.advance(600)
    late = small_stage.submit("late", roles=ONE)
    small_stage.tick()
    assert (small_stage.phase(large), small_stage.phase(late)) == ("pending", "pending")
    assert late.reason == "BehindReservation"
    assert late.message == "The free nodes are held for vision/large, which has waited longer."
    small_stage.clock.advance(1800)
    small_stage.tick(2)
    assert small_stage.phase(late) in ("starting", "running"), (
        "the nodes are free for others after half an hour"
    )


@pytest.mark.heavy
def test_pool_can_disable_holding_nodes_for_large_workloads(small_stage: Stage) -> None:
    NodePool.objects.update(reservation_after=None)
    small_stage.submit("first", roles=ONE)
    small_stage.tick(2, seconds=10)
    small_stage.submit("large", roles=BOTH)
    small_stage.clock.advance(600)
    late = small_stage.submit("late", roles=ONE)
    small_stage.tick(2)
    assert small_stage.phase(late) in ("starting", "running")


def test_workload_with_a_short_expected_runtime_uses_held_nodes(small_stage: Stage) -> None:
    # The node is held until the first workload has run for its declared runtime.
    complete(small_stage, 60, 60, 60, 60, 60)
    small_stage.submit("first", roles=ONE, max_runtime=7200)
    small_stage.tick(2, seconds=10)
    large = small_stage.submit("large", roles=BOTH)
    small_stage.clock.advance(600)
    late = small_stage.submit("late", roles=ONE)
    small_stage.tick(2)
    assert small_stage.phase(large) == "pending"
    assert small_stage.phase(late) in ("starting", "running")


def test_quota_is_held_for_a_workload_with_a_higher_priority(stage: Stage) -> None:
    stage.cast.research.quotas.update(gpu_milli=4000)
    stage.cast.vision.quotas.update(gpu_milli=4000)
    stage.submit("first", roles=ONE, preemptible=False)
    stage.tick(2, seconds=10)
    large = stage.submit(
        "large", roles=[{"name": "worker", "replicas": 2, "gpu": 2}], priority=200, preemptible=False
    )
    stage.tick()
    stage.clock.advance(600)
    late = stage.submit("late", roles=ONE, preemptible=False)
    spare = stage.submit("spare", roles=ONE)
    stage.tick(2)
    assert (stage.phase(large), stage.phase(late)) == ("pending", "pending")
    assert late.message == (
        "Non-preemptible workloads must fit in the quota of vision (4 GPUs): 1 allocated to them, "
        "1 requested, 4 GPUs held for vision/large, which has a higher priority."
    )
    assert stage.phase(spare) in ("starting", "running"), "a preemptible workload may use the capacity"
