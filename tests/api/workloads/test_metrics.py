"""Tests for metrics over REST: lists, samples, comparison and ranking of array tasks."""

from typing import Any

import pytest
from django.utils import timezone

from projects.models import Metric, MetricsReader, Pod, Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training


def test_metrics_are_listed_by_name_with_their_exact_minimum_and_maximum(cast: Cast, dave: Caller) -> None:
    workload = make.workload(cast.vision, "train")
    make.metric(workload, "loss", *(1 / (step + 1) for step in range(300)))
    make.metric(workload, "accuracy", 0.5)
    path = f"workloads/{workload.pk}/metrics"
    first = dave.get(path, limit=1).json()
    assert [item["name"] for item in first["items"]] == ["accuracy"]
    (loss,) = dave.get(path, cursor=first["next"], limit=1, points=10).json()["items"]
    assert loss["last"] == loss["lowest"] == {"step": 2990, "value": 1 / 300}
    assert loss["highest"] == {"step": 0, "value": 1.0}
    assert (len(loss["steps"]), loss["steps"][0], loss["steps"][-1]) == (10, 0, 2990)
    assert dave.get(path, name="loss", points=0).json()["items"][0]["steps"] == []
    assert dave.get(path, name="none").json()["items"] == []
    assert dave.get(path, points=501).json()["errors"][0]["path"] == "points"


@pytest.mark.heavy
def test_comparison_contains_visible_workloads_in_the_requested_order(cast: Cast, dave: Caller) -> None:
    ours, others = make.workload(cast.vision, "ours"), make.workload(cast.ads, "theirs")
    second = make.workload(cast.vision, "second")
    for workload in (ours, others, second):
        make.metric(workload, "loss", 0.5)
    ids = [str(workload.pk) for workload in (second, others, ours)]
    items = dave.get("metrics", name="loss", workload=ids).json()["items"]
    assert [(item["workload"], item["metric"]["last"]["value"]) for item in items] == [
        ("second", 0.5), ("ours", 0.5),
    ]  # fmt: skip
    assert dave.get("metrics", name="loss").json()["errors"][0]["allowed"] == "1 to 20 workloads"


def test_array_tasks_are_ranked_by_the_metric_goal(cast: Cast, dave: Caller) -> None:
    document = {**training("sweep", array={"tasks": 4}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    rows = list(Workload.objects.filter(array=array).order_by("array_index"))
    make.metric(rows[0], "loss", 0.9, 0.4)
    make.metric(rows[1], "loss", 0.9, 0.1, 0.7)
    make.metric(rows[2], "loss", 0.2)
    make.metric(rows[2], "accuracy", 0.2)
    Metric.objects.create(workload=rows[3], name="loss", not_finite=1, reported_at=make.ago(minutes=1))
    path = f"arrays/{array.pk}/metrics"

    def ranked(**query: Any) -> list[tuple[int, float]]:
        tasks: list[tuple[int, float]] = []
        cursor: dict[str, str] = {}
        while True:
            answer = dave.get(path, name="loss", limit=2, **query, **cursor).json()
            tasks += [(item["index"], item["best"]["value"]) for item in answer["items"]]
            if answer["next"] is None:
                return tasks
            cursor = {"cursor": answer["next"]}

    assert ranked() == [(1, 0.1), (2, 0.2), (0, 0.4)]
    assert ranked(goal="max") == [(1, 0.9), (0, 0.9), (2, 0.2)]
    assert dave.get(f"{path}/names").json() == {"names": ["accuracy", "loss"], "unread_tasks": 0}
    assert dave.get(path).json()["errors"][0]["path"] == "name"


@pytest.mark.heavy
def test_ended_tasks_are_counted_as_unread_until_their_reports_are_read(cast: Cast, dave: Caller) -> None:
    document = {**training("sweep", array={"tasks": 5}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    node, pods = make.node(cast.pool), []
    for task in Workload.objects.filter(array=array, array_index__lt=3).order_by("array_index"):
        pods.append(make.place(task, node, [], state="succeeded", ended_at=timezone.now()))
    Pod.objects.filter(pk__in=[pod.pk for pod in pods]).update(started_at=make.ago(hours=2))
    Pod.objects.filter(pk=pods[2].pk).update(ended_at=make.ago(hours=1))
    path = f"arrays/{array.pk}/metrics/names"
    assert dave.get(path).json()["unread_tasks"] == 2
    reader = MetricsReader.objects.create(pod=pods[0])
    assert dave.get(path).json()["unread_tasks"] == 2
    reader.is_complete = True
    reader.save()
    assert dave.get(path).json()["unread_tasks"] == 1
    MetricsReader.objects.create(pod=pods[1], is_complete=True)
    assert dave.get(path).json()["unread_tasks"] == 0


def test_worst_array_tasks_can_be_previewed_and_cancelled(cast: Cast, dave: Caller) -> None:
    rule = {"metric": "loss", "after_steps": 1, "min_tasks": 3}
    body = {**training("sweep", project="vision"), "array": {"tasks": 5, "stop": rule}}
    array = dave.post("arrays", body).json()["id"]
    for task in Workload.objects.filter(array=array):
        value = float(task.array_index or 0)
        Workload.objects.filter(pk=task.pk).update(phase="running", held=False, pool=cast.pool)
        Metric.objects.create(
            workload=task, name="loss", steps=[1], values=[value], last_step=1, last_value=value, min_step=1,
            min_value=value, max_step=1, max_value=value, reported_at=timezone.now(),
        )  # fmt: skip
    stops = dave.get(f"arrays/{array}/stops").json()["stops"]
    assert [(stop["index"], stop["value"], stop["median"]) for stop in stops] == [
        (3, 3.0, 1.5),
        (4, 4.0, 1.5),
    ]
    path = f"arrays/{array}/cancel"
    worst: dict[str, Any] = {"metric": "loss", "count": 2}
    preview = dave.post(f"{path}?dry_run=true", {"worst": worst}).json()
    assert (preview["changed"], preview["worst"]) == (2, [4, 3])
    assert dave.post(path, {"worst": worst}).json()["changed"] == 2
    stopping = Workload.objects.filter(array=array, phase="stopping").order_by("array_index")
    assert list(stopping.values_list("array_index", flat=True)) == [3, 4]
    assert dave.post(path, {"worst": {**worst, "metric": "none"}}).json()["changed"] == 0
    mistakes: list[dict[str, Any]] = [
        {"worst": {**worst, "count": 0}}, {"worst": worst, "indexes": ["1"]}, {"worst": {}},
    ]  # fmt: skip
    for wrong in mistakes:
        assert dave.post(path, wrong).status_code == 422
    WorkloadArray.objects.filter(pk=array).update(task_count=501)
    answer = dave.get(f"arrays/{array}/stops")
    assert answer.status_code == 409 and "arrays of at most 500 tasks" in answer.json()["detail"]
