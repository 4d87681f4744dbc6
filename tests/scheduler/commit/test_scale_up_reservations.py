"""Tests that reservations for scaling up end with the run of their workload."""

from collections.abc import Callable
from typing import Any

import pytest

from pools.models import Node
from projects.models import Phase, Pod, Workload
from projects.services.workloads import control
from scheduler.models import Eviction, Reservation
from tests.harness.samples import sample
from tests.scheduler.stage import Stage

ELASTIC = [{"name": "worker", "min": 2, "max": 3, "gpu": 1}]


def cancelled(stage: Stage, workload: Workload) -> None:
    control.cancel(actor=stage.cast.alice, workload=workload)


def suspended(stage: Stage, workload: Workload) -> None:
    control.suspend(actor=stage.cast.alice, workload=workload)


def overdue(stage: Stage, workload: Workload) -> None:
    stage.clock.advance(1000)


def drained(stage: Stage, workload: Workload) -> None:
    node = stage.pods(workload, "running")[0].node
    Node.objects.filter(pk=node.pk).update(state="draining", drain_started_at=stage.clock.now())
    stage.clock.advance(700)


def failed(stage: Stage, workload: Workload) -> None:
    stage.finish(workload, exit_code=3)


def node_lost(stage: Stage, workload: Workload) -> None:
    for pod in stage.pods(workload, "running"):
        Node.objects.filter(pk=pod.node_id).update(state="lost")


def reserve_scale_up(stage: Stage, **changes: Any) -> Workload:
    """Create a workload that runs at its minimum, with one more replica reserved. No GPU is left."""
    stage.quota(stage.cast.speech, 0)
    workload = stage.submit(roles=ELASTIC, kind="elastic", **changes)
    stage.submit("rest", roles=[{"name": "worker", "replicas": 2, "gpu": 1}], priority=90)
    stage.tick(3)
    pods = stage.pods(workload, "running")
    assert len(pods) == 2
    elsewhere = Node.objects.exclude(pk__in={pod.node_id for pod in pods}).first() or pods[0].node
    Reservation.objects.create(
        workload=workload,
        role="worker",
        index=2,
        node=elsewhere,
        devices=[0],
        gpu_milli=1000,
        since=stage.clock.now(),
    )
    return workload


@pytest.mark.parametrize("end", sample([cancelled, suspended, overdue, drained, failed, node_lost], 2))
def test_scale_up_reservation_ends_when_the_run_ends(
    stage: Stage, end: Callable[[Stage, Workload], None]
) -> None:
    workload = reserve_scale_up(stage, max_runtime=900)
    end(stage, workload)
    stage.loop.tick(reconcile=False)
    stage.loop.reconcile()
    assert stage.phase(workload) not in (Phase.STARTING, Phase.RUNNING)
    assert not Reservation.objects.filter(workload=workload).exists()


def test_scaled_up_workload_is_reclaimed_and_requeued_as_a_whole(
    stage: Stage,
) -> None:
    stage.cast.vision.quotas.update(gpu_milli=0)
    stage.quota(stage.cast.speech, 4)
    workload = stage.submit(roles=ELASTIC, kind="elastic")
    rest = stage.submit("rest", roles=[{"name": "worker", "replicas": 2, "gpu": 1}], priority=90)
    stage.tick(2)
    assert [stage.phase(row) for row in (workload, rest)] == [Phase.RUNNING] * 2
    leaving = stage.pods(rest, "running")[0]
    promise = Reservation.objects.create(
        workload=workload,
        role="worker",
        index=2,
        node=leaving.node,
        devices=leaving.allocation.devices,
        gpu_milli=1000,
        since=stage.clock.now(),
    )
    stage.runtime.stubborn.update(str(pod.pk) for pod in stage.pods(rest))
    control.cancel(actor=stage.cast.alice, workload=rest)
    everything = [{"name": "worker", "replicas": 4, "gpu": 1}]
    rival = stage.submit("rival", roles=everything, project=stage.cast.speech)
    stage.tick(3)
    assert [stage.phase(row) for row in (workload, rival)] == [Phase.RUNNING, Phase.PENDING]
    assert list(Reservation.objects.all()) == [promise], "the workload is left alone until it runs there"
    states = [_wait_for_second_run(stage, workload, seconds=40) for _ in range(8)]
    assert set(states) == {0}, "there is no capacity for a second run"
    assert len(Eviction.objects.get(workload_id=workload.pk, entire_workload=True).pods) == 3
    assert not Reservation.objects.exists()
    assert stage.phase(rival) == Phase.RUNNING
    stage.finish(rival)
    stage.clock.advance(600)
    assert [_wait_for_second_run(stage, workload) for _ in range(2)] == [3, 3]
    assert stage.phase(workload) == Phase.RUNNING


def _wait_for_second_run(stage: Stage, workload: Workload, seconds: float = 0) -> int:
    stage.tick(seconds=seconds)
    return Pod.objects.filter(workload=workload, run=2).exclude(state__in=("stopped", "lost")).count()


@pytest.mark.heavy
def test_moved_workload_keeps_its_reservation(stage: Stage) -> None:
    stage.cast.pool.node_placement = "spread"
    stage.cast.pool.save()
    one = [{"name": "worker", "replicas": 1, "gpu": 1}]
    rows = [stage.submit(name, roles=one, grace_period_seconds=30) for name in ("first", "second")]
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    stage.submit("wide", roles=[{"name": "worker", "replicas": 1, "gpu": 2}])
    stage.tick()
    moved = next(row for row in rows if stage.pods(row, "stopping"))
    promise = Reservation.objects.get(workload=moved)
    stage.clock.advance(31)
    stage.loop.tick(reconcile=False)
    stage.loop.tick(reconcile=False)
    assert stage.phase(moved) in (Phase.STARTING, Phase.RUNNING)
    (pod,) = stage.pods(moved, "starting", "running")
    assert (pod.run, pod.node_id, pod.allocation.devices) == (2, promise.node_id, promise.devices)


@pytest.mark.heavy
def test_reservation_for_a_move_is_dropped_when_the_workload_is_cancelled(stage: Stage) -> None:
    stage.cast.pool.node_placement = "spread"
    stage.cast.pool.save()
    one = [{"name": "worker", "replicas": 1, "gpu": 1}]
    rows = [stage.submit(name, roles=one, grace_period_seconds=30) for name in ("first", "second")]
    stage.tick(2)
    stage.runtime.stubborn.update(stage.runtime.running())
    stage.submit("wide", roles=[{"name": "worker", "replicas": 1, "gpu": 2}])
    stage.tick()
    moved = next(row for row in rows if stage.pods(row, "stopping"))
    assert Reservation.objects.filter(workload=moved).exists()
    control.cancel(actor=stage.cast.alice, workload=moved)
    assert not Reservation.objects.filter(workload=moved).exists()
