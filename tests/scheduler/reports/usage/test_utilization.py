"""Tests that usage is charged to the second and halved every half-life."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from pools.models import NodePool
from scheduler.models import QueueStatus, Usage
from scheduler.reports.usage.decayed import decayed_usage, integrate_with_decay
from tests.scheduler.stage import Stage

DAY = 86_400


def test_decayed_usage_converges_and_halves_after_each_half_life() -> None:
    held = integrate_with_decay(0.0, 1000.0, DAY, DAY)
    assert held == pytest.approx(1000 * 0.5 * DAY / math.log(2))
    assert integrate_with_decay(held, 0.0, DAY, DAY) == pytest.approx(held / 2)


def test_decayed_usage_does_not_depend_on_the_update_interval() -> None:
    at_once = integrate_with_decay(5.0, 3.0, 1000, 700)
    step_by_step = 5.0
    for _ in range(1000):
        step_by_step = integrate_with_decay(step_by_step, 3.0, 1, 700)
    assert step_by_step == pytest.approx(at_once)


def test_usage_in_a_tumbling_window_restarts_at_zero() -> None:
    pool = NodePool(half_life=None, window=3600, tumbling_window=True)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    row = Usage(
        used=[50.0] * 3,
        parent=[80.0] * 3,
        held=[0] * 3,
        rate=[1.0] * 3,
        parent_rate=[2.0] * 3,
        settled_at=noon,
    )
    assert decayed_usage(row, pool, noon + timedelta(minutes=10)).used[0] == 50 + 600
    assert decayed_usage(row, pool, noon + timedelta(minutes=70)).used[0] == 600


def test_only_over_quota_allocation_is_charged(stage: Stage) -> None:
    stage.cast.vision.quotas.update(gpu_milli=1000)
    workload = stage.submit(roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    stage.tick(2)
    row = Usage.objects.get(project=stage.cast.vision)
    assert (row.held[0], row.rate[0]) == (3000, 2000)
    assert row.parent_rate[0] > 0
    began = row.settled_at
    stage.clock.advance(1800)
    stage.finish(workload)
    stage.tick()
    row.refresh_from_db()
    assert row.rate[0] == 0
    seconds = (row.settled_at - began).total_seconds()
    half_life = 7 * DAY
    assert row.used[0] == pytest.approx(integrate_with_decay(0.0, 2000.0, seconds, half_life), rel=1e-6)


def test_queue_status_includes_fair_share_allocation_and_requests(stage: Stage) -> None:
    stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    row = QueueStatus.objects.get(project=stage.cast.vision)
    assert (row.share[0], row.allocated[0], row.requested[0]) == (2000, 2000, 2000)
    assert QueueStatus.objects.get(department=stage.cast.research).allocated[0] == 2000
