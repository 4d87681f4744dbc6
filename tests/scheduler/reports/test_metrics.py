"""Tests that metrics are collected from pod logs exactly once and in bounded amounts."""

import json
from typing import Any

import pytest
from django.db import OperationalError

from berth.db.loops import lease
from pools.runtimes.base import RuntimeFailure
from projects.engine.metrics import METRICS_MAX
from projects.models import Metric, MetricsReader, Pod, Workload
from scheduler.reports.metrics import collector
from scheduler.reports.metrics.collector import MetricsCollector
from scheduler.reports.metrics.storage import write_metrics
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at, listening

SECONDS = 5


class Training:
    """A workload with one running pod whose log the test writes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.workload = stage.submit(roles=[{"name": "worker", "replicas": 1}])
        stage.tick(2)
        (self.pod,) = stage.pods(self.workload, "running")
        self.collector = self.new_collector()

    def new_collector(self, holder: str = "first") -> MetricsCollector:
        collector = MetricsCollector(self.stage.clock, lambda pool: self.stage.runtime, SECONDS)
        collector._holder = holder
        return collector

    def report(self, step: int, **numbers: float) -> None:
        line = f"berth-report {json.dumps({'step': step, **numbers})}\n"
        self.stage.runtime.write(str(self.pod.pk), line.encode())

    def collect(self, seconds: float = SECONDS) -> None:
        self.stage.clock.advance(seconds)
        assert self.collector.run_once()

    def metric(self, name: str = "loss") -> Metric:
        return Metric.objects.get(workload=self.workload, name=name)

    def points(self, name: str = "loss") -> list[tuple[int, float]]:
        metric = self.metric(name)
        return list(zip(metric.steps, metric.values, strict=True))


@pytest.fixture
def training(stage: Stage) -> Training:
    return Training(stage)


def test_reports_are_stored_while_the_pod_runs_and_after_it_has_ended(training: Training) -> None:
    training.report(1, loss=0.9, accuracy=0.1)
    training.collect()
    training.report(2, loss=0.5)
    training.stage.runtime.write(str(training.pod.pk), b'berth-report {"step": 3, ')
    training.collect()
    assert training.points() == [(1, 0.9), (2, 0.5)]
    training.stage.runtime.write(str(training.pod.pk), b'"loss": 0.4}\n')
    training.report(4, loss=float("nan"))
    training.stage.finish(training.workload)
    training.stage.tick(2)
    training.collect()
    metric = training.metric()
    assert training.points() == [(1, 0.9), (2, 0.5), (3, 0.4)]
    assert (metric.last_step, metric.min_value, metric.max_value, metric.not_finite) == (3, 0.4, 0.9, 1)
    assert training.points("accuracy") == [(1, 0.1)]
    assert MetricsReader.objects.get(pod=training.pod).is_complete


def test_log_of_a_pod_that_ended_during_scheduler_downtime_is_read_on_restart(training: Training) -> None:
    training.report(1, loss=0.9)
    training.stage.finish(training.workload)
    training.stage.tick(2)
    training.stage.clock.advance(3600)
    training.collector = training.new_collector()
    training.collect()
    assert training.points() == [(1, 0.9)]
    training.collector = training.new_collector()
    Metric.objects.all().delete()
    training.collect()
    assert not Metric.objects.exists(), "the log is complete, so it is not read again"


def test_crash_neither_loses_nor_duplicates_a_reported_metric(training: Training) -> None:
    training.report(1, loss=float("nan"))
    training.report(2, loss=0.5)

    with killed_at("metrics.stored"):
        training.collect()
    training.collector = training.new_collector()
    training.collect()
    training.collector = training.new_collector()
    training.collect()
    assert (training.points(), training.metric().not_finite) == ([(2, 0.5)], 1)


def test_reported_metric_is_not_lost_if_the_database_fails_once(training: Training) -> None:
    training.report(1, loss=0.5)

    def fail(name: str) -> None:
        raise OperationalError("the server closed the connection")

    with listening(fail), pytest.raises(OperationalError):
        training.collect()
    training.collect()
    assert training.points() == [(1, 0.5)]


def test_each_round_and_transaction_stores_a_bounded_number_of_values(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = training.stage
    other = stage.submit("other", roles=[{"name": "worker", "replicas": 1}])
    stage.tick(2)
    (pod,) = stage.pods(other, "running")
    written: list[int] = []

    def count(readings: Any, *arguments: Any) -> None:
        written.append(sum(len(each.samples) for each in readings))
        write_metrics(readings, *arguments)

    monkeypatch.setattr(collector, "write_metrics", count)
    for limit, expected in (("SAMPLES_PER_TRANSACTION", [2, 2]), ("ROUND_SAMPLES", [2])):
        with monkeypatch.context() as patch:
            patch.setattr(collector, limit, 2)
            for each in (training.pod, pod):
                stage.runtime.write(str(each.pk), b'berth-report {"step": 1, "loss": 1, "rate": 2}\n')
            del written[:]
            training.collect(60)
            assert written == expected
    training.collect()
    assert written == [2, 2], "the next round reads what is left"


def test_former_leader_stores_no_metrics(training: Training) -> None:
    training.report(1, loss=0.5)
    stale = lease.acquire("metrics", "first", 0.0)
    assert stale is not None
    assert training.new_collector("second").run_once()
    training.report(2, loss=0.4)
    with pytest.raises(lease.LeadershipLost):
        training.new_collector("first").run_job(stale)
    assert training.points() == [(1, 0.5)]


@pytest.mark.heavy
def test_log_without_reports_is_read_less_and_less_often(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read_log = training.stage.runtime.read_log

    def count(pod_id: str, offset: int, limit: int) -> Any:
        reads.append(offset)
        return read_log(pod_id, offset, limit)

    monkeypatch.setattr(training.stage.runtime, "read_log", count)
    for _ in range(48):
        training.collect()
    assert 5 <= len(reads) <= 8, "4 minutes: after 5, 10, 20 and 40 s, and then once a minute"
    training.report(1, loss=0.5)
    training.collect(60)
    del reads[:]
    for _ in range(4):
        training.collect()
    assert len(reads) == 4, "a pod that reports is read in every round"


@pytest.mark.heavy
def test_excess_log_output_is_skipped(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "READ_BYTES", 1000)
    training.report(1, loss=0.9)
    training.stage.runtime.write(str(training.pod.pk), b"x" * 5000 + b"\n")
    training.report(2, loss=0.5)
    training.collect()
    assert training.points() == [(2, 0.5)]
    training.stage.runtime.write(str(training.pod.pk), b"y" * 1000)
    training.collect()
    training.report(3, loss=0.4)
    training.collect()
    assert training.points() == [(2, 0.5), (3, 0.4)]


@pytest.mark.heavy
def test_number_of_metrics_per_workload_is_limited(training: Training) -> None:
    training.report(1, **{f"m{number}": 1.0 for number in range(40)})
    training.collect()
    training.report(2, **{f"n{number}": 1.0 for number in range(40)}, m1=2.0)
    training.collect()
    assert Metric.objects.filter(workload=training.workload).count() == METRICS_MAX
    assert training.metric("m1").last_value == 2.0


@pytest.mark.heavy
@pytest.mark.parametrize("failure", [RuntimeFailure("the node does not respond"), ValueError("bad request")])
def test_unreadable_log_and_deleted_pod_do_not_affect_other_workloads(
    training: Training, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    stage = training.stage
    other = stage.submit("other", roles=[{"name": "worker", "replicas": 1}])
    stage.tick(2)
    (pod,) = stage.pods(other, "running")
    training.report(1, loss=0.5)
    read_log = stage.runtime.read_log

    def fail(pod_id: str, offset: int, limit: int) -> Any:
        if pod_id == str(pod.pk):
            raise failure
        return read_log(pod_id, offset, limit)

    monkeypatch.setattr(stage.runtime, "read_log", fail)
    training.collect()
    assert training.points() == [(1, 0.5)]
    Pod.objects.filter(pk=pod.pk).delete()
    Workload.objects.filter(pk=other.pk).update(phase="cancelled", ended_at=stage.clock.now())
    training.report(2, loss=0.4)
    training.collect()
    assert training.points() == [(1, 0.5), (2, 0.4)]
