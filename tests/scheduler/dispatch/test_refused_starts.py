"""Tests for workloads whose pods the pool's cluster refuses to start."""

from datetime import timedelta
from typing import Any

from pools.runtimes.base import RuntimeFailure, StartRefused
from projects.models import Phase
from scheduler.models import Allocation
from tests.present import present
from tests.scheduler.stage import Stage

WEBHOOK = 'the cluster refuses the pod: failed calling webhook "images.example.org"'
GANG: dict[str, Any] = {"roles": [{"name": "worker", "replicas": 4, "gpu": 1}]}


def refuse(stage: Stage, times: int) -> None:
    stage.runtime.next("start", *[StartRefused(WEBHOOK)] * times)


def starts(stage: Stage) -> int:
    return [call for call, _ in stage.runtime.calls].count("start")


def test_refused_gang_shows_the_refusal_and_is_retried_every_few_seconds(stage: Stage) -> None:
    refuse(stage, 8)
    workload = stage.submit(**GANG)
    stage.tick(3, seconds=1)
    assert starts(stage) == 4
    assert stage.phase(workload) == Phase.STARTING
    assert workload.message == f"worker 0 could not be started yet: {WEBHOOK}."
    stage.tick(1, seconds=5)
    stage.tick()
    assert starts(stage) == 8
    stage.tick(3, seconds=5)
    assert stage.phase(workload) == Phase.RUNNING


def test_gang_that_stays_refused_frees_its_nodes_and_starts_after_a_backoff(stage: Stage) -> None:
    refuse(stage, 1000)
    workload = stage.submit(**GANG)
    stage.tick(14, seconds=5)
    assert stage.phase(workload) == Phase.PENDING
    assert not Allocation.objects.filter(released_at=None).exists()
    stage.tick()
    workload.refresh_from_db()
    until = workload.backoff_until
    assert workload.message == (
        f"Can start again at {until:%Y-%m-%d %H:%M:%S} UTC, after the pool's cluster refused its pods: "
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


def test_gang_whose_refusals_arrive_late_frees_its_nodes(stage: Stage) -> None:
    """A webhook that does not respond delays each refusal, so that every second call is still running."""
    late = RuntimeFailure("the API server has not responded to this call yet")
    stage.runtime.next("start", *[late, StartRefused(WEBHOOK)] * 1000)
    workload = stage.submit(roles=[{"name": "worker", "gpu": 1}])
    stage.tick(17, seconds=5)
    assert stage.phase(workload) == Phase.PENDING
    assert not Allocation.objects.filter(released_at=None).exists()


def test_backoff_grows_while_the_cluster_refuses(stage: Stage) -> None:
    refuse(stage, 1000)
    workload = stage.submit(**GANG)
    waits, begun = [], stage.clock.now()
    for _ in range(2):
        while stage.phase(workload) != Phase.STOPPING:
            stage.tick()
            refused_at = stage.clock.now()
            stage.clock.advance(5)
        backoff_until = present(workload.backoff_until)
        waits.append(backoff_until - refused_at)
        assert refused_at - begun >= timedelta(seconds=60)
        stage.tick(2)
        begun = backoff_until
    assert waits == [timedelta(seconds=40), timedelta(seconds=80)]


def test_running_workload_keeps_its_pods_when_more_are_refused(stage: Stage) -> None:
    workload = stage.submit(kind="elastic", roles=[{"name": "worker", "min": 1, "max": 2, "gpu": 1}])
    stage.tick()
    assert stage.phase(workload) in (Phase.STARTING, Phase.RUNNING)
    refuse(stage, 1000)
    stage.tick(20, seconds=5)
    assert stage.phase(workload) == Phase.RUNNING
