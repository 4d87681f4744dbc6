"""Tests that caching makes dry runs cheaper without changing any result."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from projects.services.workloads.prediction import Prediction, dry_run
from scheduler.reports.what_if import what_if_cache
from tests.cast import training
from tests.scheduler.stage import Stage

TWO = [{"name": "worker", "replicas": 2, "gpu": 1}]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_cache, "_shared", what_if_cache.WhatIfCache())


def predict(stage: Stage, **document: object) -> Prediction:
    document = {**training("asked", **{"roles": TWO, **document}), "project": "vision"}
    return dry_run(actor=stage.cast.alice, document=document, now=stage.clock.now())


def predict_without_cache(stage: Stage, monkeypatch: pytest.MonkeyPatch, **document: object) -> Prediction:
    with monkeypatch.context() as patch:
        patch.setattr(what_if_cache, "_shared", what_if_cache.WhatIfCache())
        return predict(stage, **document)


@pytest.mark.heavy
def test_prediction_does_not_depend_on_earlier_dry_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = set()
    first = stage.submit("first", roles=TWO, priority=10)
    changes = (
        lambda: stage.submit("second", roles=TWO, priority=60),
        lambda: stage.submit("third", roles=TWO, preemptible=False),
        lambda: stage.finish(first),
        lambda: stage.node(2),
        lambda: stage.quota(stage.cast.ads, 2),
    )
    large = [{"name": "worker", "replicas": 9, "gpu": 1}]
    documents: list[dict[str, object]] = [{}, {"priority": 90}, {"preemptible": False}, {"roles": large}]
    for change in changes:
        for document in documents:
            prediction = predict(stage, **document)
            assert prediction == predict_without_cache(stage, monkeypatch, **document)
            outcomes.add(prediction.outcome)
        change()
        stage.tick(2, seconds=5)
    assert outcomes == {"would_start", "would_stay_pending", "would_evict", "unschedulable"}


def test_second_dry_run_rereads_no_unchanged_row(stage: Stage) -> None:
    stage.submit("first", roles=TWO)
    stage.tick(2)
    predict(stage)
    with CaptureQueriesContext(connection) as queries:
        predict(stage)
    read = [query["sql"] for query in queries if "FROM projects_workload AS work" in query["sql"]]
    assert read and not any("work.priority" in sql for sql in read), "versions only"


def test_concurrent_dry_run_starts_with_an_empty_cache(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if_cache, "MAX_WAIT_SECONDS", 0.01)
    with what_if_cache.shared_cache() as mine:
        assert predict(stage).outcome == "would_start"
        with what_if_cache.shared_cache() as other:
            assert other is not mine
    with what_if_cache.shared_cache() as again:
        assert again is mine


def test_failed_dry_run_releases_the_cache(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("scheduler.reports.what_if.dry_run.decide_pools", broken)
        with pytest.raises(RuntimeError):
            predict(stage)
    monkeypatch.setattr(what_if_cache, "MAX_WAIT_SECONDS", 0.01)
    assert predict(stage) == predict_without_cache(stage, monkeypatch)
