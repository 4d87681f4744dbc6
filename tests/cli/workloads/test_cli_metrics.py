"""Tests for `berth metrics`."""

import json
from typing import Any

import httpx
import pytest

from berth.cli.commands.pods.metrics import sparkline
from tests.cli.terminal import Terminal
from tests.cli.workloads.test_cli_arrays import GONE, array, json_answer
from tests.client.stub_server import TIME, StubServer, page, workload

TRAIN = workload("train")


def metric(name: str = "loss", *values: float) -> dict[str, Any]:
    points = [{"step": step, "value": value} for step, value in enumerate(values)]
    return {
        "name": name, "last": points[-1], "lowest": min(points, key=lambda point: point["value"]),
        "highest": max(points, key=lambda point: point["value"]), "not_finite": 0, "reported_at": TIME,
        "steps": [*range(len(values))], "values": [*values],
    }  # fmt: skip


def test_workload_metrics_are_shown_with_a_trend(terminal: Terminal) -> None:
    server = StubServer(page([TRAIN]), json_answer(TRAIN), page([metric("loss", 1.0, 0.25, 0.5)]))
    result = terminal.run("metrics", "train", server=server)
    assert result.stdout.split() == [
        "METRIC", "LAST", "STEP", "LOWEST", "HIGHEST", "TREND", "loss", "0.5", "2", "0.25", "1", "█▁▃",
    ]  # fmt: skip
    assert server.requests[-1].url.params["points"] == "20"


def test_comparison_of_workloads_requires_a_metric(terminal: Terminal) -> None:
    other = workload("other")
    lookups = (page([TRAIN]), json_answer(TRAIN), page([other]), json_answer(other))
    result = terminal.run("metrics", "train", "other", server=StubServer(*lookups))
    assert (result.exit_code, "--name METRIC" in result.stderr) == (2, True)
    row = {"workload": "train", "id": TRAIN["id"], "project": "vision", "metric": metric("loss", 0.5)}
    server = StubServer(*lookups, json_answer({"items": [row]}))
    result = terminal.run("metrics", "train", "other", "--name", "loss", server=server)
    assert "train" in result.stdout and "0.5" in result.stdout
    assert server.requests[-1].url.params.get_list("workload") == [TRAIN["id"], other["id"]]


def array_server(*replies: httpx.Response) -> StubServer:
    sweep = {**array(), "spec": {}}
    return StubServer(page([]), page([array()]), json_answer(sweep), *replies)


def test_best_task_of_an_array_is_shown(terminal: Terminal) -> None:
    row = {
        "index": 3, "workload": "sweep-3", "id": TRAIN["id"], "phase": "completed",
        "best": {"step": 9, "value": 0.875}, "metric": metric("accuracy", 0.5),
    }  # fmt: skip
    names = {"names": ["accuracy"], "unread_tasks": 0}
    server = array_server(json_answer(names), page([row]), json_answer(names))
    result = terminal.run("metrics", "sweep", "--goal", "max", server=server)
    assert result.stdout.endswith("\nBest task: sweep-3 (accuracy 0.875 at step 9)\n"), result.stderr
    server = array_server(json_answer(names), page([row]), json_answer({**names, "unread_tasks": 2}))
    result = terminal.run("metrics", "sweep", "--goal", "max", server=server)
    assert result.stdout.endswith("\nThe last reports of 2 tasks have not been read yet.\n"), result.stderr
    assert server.requests[-2].url.params["goal"] == "max"


def test_metric_name_is_required_if_an_array_has_several_metrics(terminal: Terminal) -> None:
    result = terminal.run("metrics", "sweep", server=array_server(json_answer({"names": ["a", "b"]})))
    assert (result.exit_code, "The tasks report a, b." in result.stderr) == (2, True)
    result = terminal.run("metrics", "sweep", server=array_server(json_answer({"names": []})))
    assert (result.exit_code, "have not reported any metrics" in result.stderr) == (0, True)
    assert terminal.run("metrics", "none", server=StubServer(page([]), page([]), GONE)).exit_code != 0


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([1.0], "▁"), ([0.0, 1.0], "▁█"), ([-1e308, 1.7e308], "▁█")]
)
def test_sparkline_accepts_any_numbers(values: list[float], text: str) -> None:
    assert sparkline(values) == text


def test_worst_tasks_can_be_previewed_and_cancelled(terminal: Terminal) -> None:
    rule = {"metric": "loss", "after_steps": 10}
    sweep = {**array(), "spec": {"array": {"tasks": 3, "stop": rule}}}
    stop = {"index": 2, "metric": "loss", "step": 10, "value": None, "median": 1.5, "tasks": 2, "message": ""}
    replies = (page([]), page([array()]), json_answer(sweep))
    server = StubServer(*replies, json_answer({"stops": [stop]}))
    result = terminal.run("metrics", "sweep", "--stops", server=server)
    assert result.stdout.split("\n")[1].split() == ["sweep-2", "10", "NaN", "1.5", "2"], result.stderr
    server = StubServer(*replies, json_answer({"changed": 2, "worst": [2, 0], "array": array()}))
    result = terminal.run("cancel", "sweep", "--worst", "2", "--metric", "loss", server=server)
    assert result.stdout == "vision/sweep: 2 tasks cancelled (2, 0)\n", result.stderr
    body = json.loads(server.requests[-1].content)
    assert body == {"worst": {"metric": "loss", "goal": "min", "count": 2}}
    assert "must be used together" in terminal.run("cancel", "sweep", "--worst", "2").stderr
