"""Tests for workloads whose pods are rejected by the pool's cluster."""

from datetime import timedelta
from typing import Any

import pytest

from pools.runtimes.base import PodCause, PodSpec, RuntimeFailure, StartRejected
from projects.models import Event, Phase
from projects.services.workloads import control
from scheduler.models import Allocation
from tests.scheduler.stage import Stage
from tests.support.present import present

WEBHOOK = 'the cluster rejects the pod: failed calling webhook "images.example.org"'
GANG: dict[str, Any] = {"roles": [{"name": "worker", "replicas": 4, "gpu": 1}]}


def reject(stage: Stage, times: int) -> None:
    stage.runtime.next("start", *[StartRejected(WEBHOOK)] * times)


def starts(stage: Stage) -> int:
    return [call for call, _ in stage.runtime.calls].count("start")


def test_rejected_gang_shows_the_rejection_and_is_retried_every_few_seconds(stage: Stage) -> None:
    reject(stage, 8)
    workload = stage.submit(**GANG)
    stage.tick(3, seconds=1)
    assert starts(stage) == 4
    assert stage.phase(workload) == Phase.STARTING
    assert workload.message == f"Pod worker-0 could not be started yet: {WEBHOOK}."
    stage.tick(1, seconds=5)
    stage.tick()
    assert starts(stage) == 8
    stage.tick(3, seconds=5)
    assert stage.phase(workload) == Phase.RUNNING


def test_repeatedly_rejected_gang_frees_its_nodes_and_starts_after_a_backoff(stage: Stage) -> None:
    reject(stage, 1000)
    workload = stage.submit(**GANG)
    stage.tick(14, seconds=5)
    assert stage.phase(workload) == Phase.PENDING
    assert not Allocation.objects.filter(released_at=None).exists()
    stage.tick()
    workload.refresh_from_db()
    until = workload.backoff_until
    assert workload.message == (
        f"Restart delay until {until:%Y-%m-%d %H:%M:%S} UTC, after the pool's cluster rejected its pods: "
        f"{WEBHOOK}."
    )
    assert (workload.reason, workload.restarts, workload.preemptions) == ("Backoff", 0, 0)
    other = stage.submit("other", **GANG)
    stage.runtime.errors_by_call.clear()
    stage.tick(2)
    assert stage.phase(other) == Phase.RUNNING
    stage.finish(other)
    stage.clock.advance(300)
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.start_refusal == ""


@pytest.mark.heavy
def test_gang_with_late_rejections_frees_its_nodes(stage: Stage) -> None:
    # An unresponsive webhook delays each rejection, so that every second call is still running.
    late = RuntimeFailure("the API server has not responded to this call yet")
    stage.runtime.next("start", *[late, StartRejected(WEBHOOK)] * 1000)
    workload = stage.submit(roles=[{"name": "worker", "gpu": 1}])
    stage.tick(17, seconds=5)
    assert stage.phase(workload) == Phase.PENDING
    assert not Allocation.objects.filter(released_at=None).exists()


@pytest.mark.heavy
def test_backoff_increases_while_the_cluster_rejects_starts(stage: Stage) -> None:
    reject(stage, 1000)
    workload = stage.submit(**GANG)
    waits, begun = [], stage.clock.now()
    for _ in range(2):
        while stage.phase(workload) != Phase.STOPPING:
            stage.tick()
            rejected_at = stage.clock.now()
            stage.clock.advance(5)
        backoff_until = present(workload.backoff_until)
        waits.append(backoff_until - rejected_at)
        assert rejected_at - begun >= timedelta(seconds=60)
        stage.tick(2)
        begun = backoff_until
    assert waits == [timedelta(seconds=40), timedelta(seconds=80)]


@pytest.mark.heavy
def test_rejected_starts_of_an_ended_workload_are_discarded(stage: Stage) -> None:
    reject(stage, 1000)
    ended = stage.submit("ended", **GANG)
    stage.tick(14, seconds=5)
    assert list(stage.loop.context.sent.releases) == [ended.pk]
    control.cancel(actor=stage.cast.alice, workload=ended)
    rejected = stage.submit("refused", **GANG)
    stage.tick(14, seconds=5)
    assert list(stage.loop.context.sent.releases) == [rejected.pk]
    assert stage.loop.context.sent.started == {}


def reject_all_but_the_first(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    """Make the cluster reject all replicas except rank 0."""
    start = stage.runtime.start

    def start_or_reject(order: PodSpec) -> None:
        if order.env["RANK"] != "0":
            raise StartRejected(WEBHOOK)
        start(order)

    patch.setattr(stage.runtime, "start", start_or_reject)


def test_gpus_of_rejected_replicas_are_free_during_the_backoff(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject_all_but_the_first(stage, monkeypatch)
    workload = stage.submit(kind="elastic", roles=[{"name": "worker", "min": 1, "max": 3, "gpu": 1}])
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert len(stage.pods(workload, "starting")) == 2
    stage.tick(11, seconds=5)
    assert len(stage.pods(workload, "starting")) == 2
    stage.tick(3, seconds=5)
    assert stage.phase(workload) == Phase.RUNNING
    assert len(stage.pods(workload, "running")) == 1
    assert Allocation.objects.filter(released_at=None).count() == 1
    event = Event.objects.get(workload_id=workload.pk, kind="shrunk")
    assert event.message == (
        "Scaled down by 2 replicas, because the pool's cluster refused to start them for 60 s: "
        f"{WEBHOOK}. The workload can scale up again at {workload.backoff_until:%Y-%m-%d %H:%M:%S} UTC."
    )
    monkeypatch.undo()
    stage.tick(4, seconds=5)
    assert len(stage.pods(workload, "running")) == 1, "the backoff has not ended"
    stage.tick(6, seconds=5)
    assert len(stage.pods(workload, "running")) == 3


@pytest.mark.heavy
def test_rejected_replacement_of_a_required_replica_is_retried(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    reject_all_but_the_first(stage, monkeypatch)
    stage.runtime.end(str(stage.pods(workload)[1].pk), cause=PodCause.LOST, message="killed")
    stage.tick(20, seconds=5)
    assert stage.phase(workload) == Phase.RUNNING
    assert len(stage.pods(workload, "starting")) == 1
    monkeypatch.undo()
    stage.tick(3, seconds=5)
    assert len(stage.pods(workload, "running")) == 2


@pytest.mark.heavy
def test_requeue_message_after_failed_starts_states_the_reason(stage: Stage) -> None:
    workload = stage.submit(**GANG, restart_policy={"kind": "on_failure", "max_restarts": 3})
    stage.tick(2)
    missing = "the image has no program `python`"
    for pod in stage.pods(workload):
        stage.runtime.end(str(pod.pk), cause=PodCause.START_FAILED, message=missing)
    stage.tick(3)
    assert stage.phase(workload) == Phase.PENDING
    until = present(workload.backoff_until)
    assert workload.message == (
        f"Restart delay until {until:%Y-%m-%d %H:%M:%S} UTC, after pod worker-0 could not be started: "
        f"{missing}."
    )
    stage.clock.advance(600)
    stage.tick(3)
    assert (stage.phase(workload), workload.start_refusal) == (Phase.RUNNING, "")
    stage.runtime.end(str(stage.pods(workload, "running")[0].pk), exit_code=1)
    stage.tick(3)
    assert stage.phase(workload) == Phase.PENDING
    assert workload.message.endswith(" UTC, after 2 failed runs.")
