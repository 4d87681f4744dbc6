"""Tests for node counts over time, computed from nodes and scaling history."""

from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from pools import services
from pools.capacity_history import capacity_over_time
from pools.engine.timeline import NodeHistory, NodePhase, TimelinePoint, build_timeline, downsample
from pools.models import NodePool
from tests.pools.stage import SYSTEM, Stage, pool

PENDING, CURRENT, DRAINING, GONE = NodePhase


def test_node_is_counted_once_in_its_current_phase() -> None:
    lives = [NodeHistory(10, ((20, CURRENT), (50, DRAINING), (60, GONE))), NodeHistory(10, ((30, GONE),))]
    assert build_timeline(lives, [(0, 0), (10, 2), (50, 1)], 0, 100) == (
        TimelinePoint(0, 0, 0, 0, 0), TimelinePoint(10, 2, 0, 2, 0),
        TimelinePoint(20, 2, 1, 1, 0), TimelinePoint(30, 2, 1, 0, 0),
        TimelinePoint(50, 1, 0, 0, 1), TimelinePoint(60, 1, 0, 0, 0),
    )  # fmt: skip


def test_first_timeline_point_has_the_state_at_the_start_of_the_window() -> None:
    assert build_timeline([NodeHistory(0, ((1, CURRENT),))], [(0, 1)], 50, 100) == (
        TimelinePoint(50, 1, 1, 0, 0),
    )


PHASE_BY_EVENT = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(list(NodePhase))), max_size=5)
LIVES = st.lists(st.builds(NodeHistory, st.integers(0, 99), PHASE_BY_EVENT.map(tuple)), max_size=6)


@given(lives=LIVES, begin=st.integers(0, 60))
def test_node_counts_are_between_zero_and_the_number_of_nodes(lives: list[NodeHistory], begin: int) -> None:
    points = build_timeline(lives, [(0, 3)], begin, 100)
    assert points[0].at == begin
    assert [point.at for point in points] == sorted({point.at for point in points})
    for point in points:
        counts = (point.current, point.pending, point.draining)
        assert min(counts) >= 0
        assert sum(counts) <= len(lives)


def test_downsampling_keeps_the_last_point_of_each_interval() -> None:
    points = [TimelinePoint(at, at, 0, 0, 0) for at in range(1000)]
    points_left = downsample(points, 10, 1000)
    assert [point.at for point in points_left] == [99, 199, 299, 399, 499, 599, 699, 799, 899, 999]
    assert downsample(points[:5], 10, 1000) == tuple(points[:5])


@pytest.fixture
def stage(db: None) -> Stage:
    """Return a stage whose clock starts an hour ago, so that changes by services have later timestamps."""
    return Stage(pool(nodes=(0, 4), autoscale_cooldown=0), now=timezone.now() - timedelta(hours=1))


def test_scaled_pool_timeline_counts_nodes_by_state(stage: Stage) -> None:
    NodePool.objects.filter(pk=stage.pool.pk).update(created_at=stage.now - timedelta(seconds=1))
    stage.provider.boots_immediately = False
    stage.pass_time(60)
    stage.report(queued=4)
    stage.reconcile()
    stage.pass_time(30)
    stage.provider.boot()
    stage.reconcile()
    stage.report(running=4, capacity=4)
    services.drain_node(actor=SYSTEM, node=stage.node(1))
    stage.pool.refresh_from_db()
    points = capacity_over_time(stage.pool, now=timezone.now(), span=timedelta(hours=2))
    counts = [(point.desired, point.current, point.pending, point.draining) for point in points]
    assert counts[:3] == [(0, 0, 0, 0), (2, 0, 2, 0), (2, 2, 0, 0)]
    assert (2, 1, 0, 1) in counts


def test_node_without_history_is_counted_in_its_current_state(stage: Stage) -> None:
    stage.provider.boots_immediately = True
    stage.report(queued=2)
    stage.reconcile()
    node = stage.node(0)
    type(node).objects.filter(pk=node.pk).update(state="cordoned", since=stage.now)
    stage.pool.refresh_from_db()
    points = capacity_over_time(stage.pool, now=stage.now + timedelta(seconds=5), span=timedelta(hours=1))
    assert (points[-1].current, points[-1].pending) == (1, 0)


def test_edited_node_limits_are_recorded_if_they_change_the_pool_size(stage: Stage) -> None:
    services.edit_pool(actor=SYSTEM, pool=stage.pool, changes={"nodes": (2, 4)})
    event = stage.pool.scaling_events.get()
    assert (event.before, event.after, event.reason) == (0, 2, "limits changed by tests")
