"""Tests for deleting a runtime's records of many ended pods."""

from typing import Any

import pytest

from pools.runtimes.base import RuntimeFailure
from scheduler.loop.dispatch.cleanup.sweep import FORGETS_AHEAD, MIN_ENDED_AGE, sweep
from tests.fakes.runtime import FakeRuntime
from tests.scheduler.stage import Stage

COUNT = FORGETS_AHEAD * 2


class RecordingRuntime(FakeRuntime):
    """A runtime that records which pods it has begun to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.unfinished: set[str] = set()
        self.most_unfinished = 0
        self.is_silent = False

    def forget_in_background(self, pod_id: str) -> None:
        self.unfinished.add(pod_id)
        self.most_unfinished = max(self.most_unfinished, len(self.unfinished))

    def forget(self, pod_id: str) -> None:
        self.unfinished.remove(pod_id)  # a pod that the runtime has not begun to forget is an error
        if self.is_silent:
            raise RuntimeFailure("the API server is silent")
        super().forget(pod_id)


@pytest.fixture
def recording_runtime(stage: Stage) -> RecordingRuntime:
    """Return a runtime whose pods all ended long ago."""
    runtime = RecordingRuntime()
    stage.loop.context.runtimes = lambda pool: runtime
    workload: Any = stage.submit(roles=[{"name": "worker", "replicas": COUNT, "gpu": 0, "cpu": 0.1}])
    stage.tick(2)
    assert len(runtime.running()) == COUNT, workload.message
    for pod in stage.pods(workload):
        runtime.end(str(pod.pk), exit_code=0)
    stage.tick()
    stage.clock.advance(MIN_ENDED_AGE.total_seconds())
    return runtime


def test_pod_records_are_deleted_in_batches_of_bounded_size(
    stage: Stage, recording_runtime: RecordingRuntime
) -> None:
    assert set(sweep(stage.clock.now(), stage.loop.context)) == {""}
    assert recording_runtime.list_pods() == ()
    assert recording_runtime.most_unfinished == FORGETS_AHEAD


def test_pod_sweep_stops_contacting_a_cluster_after_a_failure(
    stage: Stage, recording_runtime: RecordingRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    recording_runtime.is_silent = True
    list(sweep(stage.clock.now(), stage.loop.context))
    assert len(recording_runtime.list_pods()) == COUNT
    assert recording_runtime.most_unfinished == FORGETS_AHEAD
    assert len([record for record in caplog.records if "cannot be swept" in record.message]) == 1


def test_former_leader_deletes_no_pod_records(stage: Stage, recording_runtime: RecordingRuntime) -> None:
    stage.loop.context.leads = lambda: False
    list(sweep(stage.clock.now(), stage.loop.context))
    assert recording_runtime.most_unfinished == 0
    assert len(recording_runtime.list_pods()) == COUNT
