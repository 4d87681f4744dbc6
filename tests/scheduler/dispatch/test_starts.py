"""Tests for starting many pods in one tick."""

from typing import Any

import pytest

from pools.runtimes.base import PodSpec, RuntimeFailure
from scheduler.loop.dispatch import pods
from scheduler.loop.dispatch.pods import STARTS_AHEAD
from tests.fakes.runtime import FakeRuntime
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.sizes import fix_tick_size


class RecordingRuntime(FakeRuntime):
    """A runtime that records which starts have begun and which were completed."""

    starts_in_background = True

    def __init__(self) -> None:
        super().__init__()
        self.unfinished: set[str] = set()
        self.most_unfinished = 0

    def begin_start(self, order: PodSpec) -> None:
        self.unfinished.add(order.pod_id)
        self.most_unfinished = max(self.most_unfinished, len(self.unfinished))

    def start(self, order: PodSpec) -> None:
        self.unfinished.remove(order.pod_id)  # a start that has not begun is an error
        super().start(order)


@pytest.fixture
def recording_runtime(stage: Stage) -> RecordingRuntime:
    runtime = RecordingRuntime()
    stage.loop.context.runtimes = lambda pool: runtime
    return runtime


def submit(stage: Stage, replicas: int) -> Any:
    return stage.submit(roles=[{"name": "worker", "replicas": replicas, "gpu": 0, "cpu": 0.1}])


def test_number_of_concurrent_starts_is_bounded(stage: Stage, recording_runtime: RecordingRuntime) -> None:
    workload = submit(stage, STARTS_AHEAD * 2)
    stage.tick(2)
    assert len(recording_runtime.running()) == STARTS_AHEAD * 2, workload.message
    assert recording_runtime.most_unfinished == STARTS_AHEAD
    assert not recording_runtime.unfinished


def test_additional_pods_start_between_ticks(
    stage: Stage, recording_runtime: RecordingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_tick_size(stage, monkeypatch, 5)
    monkeypatch.setattr(pods, "STARTS_BETWEEN", 3)
    workload = submit(stage, 10)
    stage.tick()
    first, second = stage.pods(workload)[:5], stage.pods(workload)[5:]
    assert set(recording_runtime.running()) == {str(pod.pk) for pod in first}
    assert recording_runtime.unfinished == {str(pod.pk) for pod in second[:3]}
    stage.tick()
    assert len(recording_runtime.running()) == 10
    assert not recording_runtime.unfinished


def test_failed_start_does_not_prevent_later_starts(
    stage: Stage, recording_runtime: RecordingRuntime
) -> None:
    recording_runtime.next("start", RuntimeFailure("the API server rejected a request"))
    workload = submit(stage, 5)
    stage.tick()
    assert len(recording_runtime.running()) == 4
    workload.refresh_from_db()
    assert workload.message == "Pod worker-0 could not be started yet: the API server rejected a request."


def test_pods_with_the_same_error_share_one_warning(
    stage: Stage, recording_runtime: RecordingRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    silent, full = RuntimeFailure("the API server is silent"), RuntimeFailure("the disk is full")
    recording_runtime.next("start", silent, full, silent, silent)
    submit(stage, 5)
    stage.tick()
    warnings = [record.getMessage() for record in caplog.records if "could not be started" in record.message]
    assert len(warnings) == 2
    assert warnings[0].endswith(" and 2 others could not be started: the API server is silent")
    assert warnings[1].endswith(" could not be started: the disk is full")


def test_former_leader_starts_no_further_pods(stage: Stage, recording_runtime: RecordingRuntime) -> None:
    submit(stage, 5)
    stage.loop.context.leads = lambda: False
    stage.tick()
    assert recording_runtime.most_unfinished == 0


def test_pods_start_only_in_ticks_if_the_runtime_cannot_start_pods_in_the_background(
    stage: Stage, recording_runtime: RecordingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_tick_size(stage, monkeypatch, 5)
    monkeypatch.setattr(recording_runtime, "starts_in_background", False)
    submit(stage, 10)
    stage.tick()
    assert len(recording_runtime.running()) == 5
    assert not recording_runtime.unfinished
