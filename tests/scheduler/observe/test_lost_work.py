"""Tests for the SQL sum of the work that would be lost with each node."""

from datetime import timedelta

import pytest

from berth.core.values.amounts import MILLI
from pools.engine.victims import LostWork
from pools.lost_work import lost_work_by_node
from pools.models import Node
from projects.models import Workload
from scheduler.models import Allocation, Reservation
from tests.scheduler.stage import NOON, Stage

pytestmark = pytest.mark.django_db


def expected_lost_work(stage: Stage) -> dict[int, LostWork]:
    now, by_node = stage.clock.now(), dict[int, list[int]]()
    for held in Allocation.objects.filter(released_at=None).select_related("pod__workload"):
        saved = held.pod.workload.last_checkpoint_at
        since = held.bound_at if saved is None else max(held.bound_at, saved)
        seconds = max(0, int((now - since).total_seconds()))
        sums = by_node.setdefault(held.node_id, [0, 0, 0, 0])
        sums[0] += not held.pod.workload.preemptible
        sums[1] += seconds * held.gpu_milli * len(held.devices) // MILLI
        sums[2] += seconds * held.cpu_milli // MILLI
        sums[3] += 1
    return {node: LostWork(*sums) for node, sums in by_node.items()}


def test_lost_work_is_counted_from_the_last_checkpoint_and_includes_reservations(stage: Stage) -> None:
    stage.quota(stage.cast.product, 8)
    stage.submit("thirds", roles=[{"name": "w", "replicas": 2, "gpu": 0.3, "cpu": 0.7}])
    stage.submit("firm", priority=120, roles=[{"name": "w", "replicas": 1, "gpu": 1}])
    stage.submit("saved", roles=[{"name": "w", "replicas": 1, "gpu": 1, "cpu": 3}])
    stage.submit("without", roles=[{"name": "w", "replicas": 1, "gpu": 0, "cpu": 1}])
    stage.tick(3)
    assert Allocation.objects.filter(released_at=None).count() == 5
    Allocation.objects.update(bound_at=NOON - timedelta(seconds=1000.9))
    Workload.objects.filter(name="saved").update(last_checkpoint_at=stage.clock.now() - timedelta(seconds=7))
    assert lost_work_by_node(stage.clock.now()) == expected_lost_work(stage)
    earlier = lost_work_by_node(NOON - timedelta(days=1))  # no work counts as lost if the clock was set back
    assert {(work.gpu_seconds, work.cpu_seconds) for work in earlier.values()} == {(0, 0)}
    held = Allocation.objects.filter(released_at=None)[0]
    held.released_at = stage.clock.now()
    held.save()
    Reservation.objects.create(
        workload=Workload.objects.get(name="firm"), node=Node.objects.get(pk=held.node_id), role="w", index=7,
        devices=[], gpu_milli=0,
    )  # fmt: skip
    left = expected_lost_work(stage)
    assert (
        lost_work_by_node(stage.clock.now())[held.node_id].pods == left.get(held.node_id, LostWork()).pods + 1
    )
    assert lost_work_by_node(stage.clock.now(), stage.cast.pool) == lost_work_by_node(stage.clock.now())
