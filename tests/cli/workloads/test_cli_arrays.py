"""Tests for arrays on the command line."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from projects.models import Phase, Workload, WorkloadArray
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of
from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page, problem, workload

SWEEP = "name: sweep\nroles: [{gpu: 1}]\ncommand: python train.py\n"
GONE = problem(404, detail="No.")


def array(name: str = "sweep", state: str = "active", **counts: int) -> dict[str, Any]:
    return {
        "id": f"11111111-0000-4000-8000-{len(name):012d}", "name": name, "project": "vision",
        "department": "research", "state": state, "tasks": 100, "max_running": 10, "counts": counts,
        "priority": 50, "gpus": 1, "submitted_at": TIME, "submitted_by": "dave", "ended_at": None, "spec": {},
    }  # fmt: skip


def json_answer(body: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


@pytest.mark.parametrize(
    ("option", "section"),
    [
        ("0-999%50", {"tasks": ["0-999"], "max_running": 50}),
        ("1,5,10-90:10", {"tasks": ["1", "5", "10-90:10"]}),
    ],
)
def test_array_option_accepts_slurm_notation(
    terminal: Terminal, option: str, section: dict[str, Any]
) -> None:
    server = StubServer(json_answer({**array(), "warnings": ["Check the limits."]}, 201))
    result = terminal.run("submit", "--array", option, "-f", "-", server=server, input=SWEEP)
    assert (result.stdout, result.stderr) == (
        "vision/sweep[100] submitted\n", "berth: warning: Check the limits.\n",
    )  # fmt: skip
    assert server.calls == ["POST /api/v1/arrays"]
    assert json.loads(server.requests[0].content)["array"] == section


@pytest.mark.parametrize(
    ("option", "part"), [("0-9%x", "'%x'"), ("9-5", "'9-5'"), ("a", "'a'"), ("", "''"), ("1,,2", "''")]
)
def test_invalid_array_option_is_rejected(terminal: Terminal, option: str, part: str) -> None:
    result = terminal.run("submit", "--array", option, "-f", "-", input=SWEEP)
    assert result.exit_code == 2
    assert f"--array: is not a valid index, range or limit; received {part}" in result.stderr


def test_array_option_limits_the_tasks_of_an_array_in_the_document(terminal: Terminal) -> None:
    server = StubServer(json_answer({**array(), "warnings": []}, 201))
    document = SWEEP + "array: {values: [a, b, c]}\n"
    result = terminal.run("submit", "--array", "1-2%1", "-f", "-", server=server, input=document)
    assert (result.exit_code, result.stderr) == (0, "")
    section = {"values": ["a", "b", "c"], "tasks": ["1-2"], "max_running": 1}
    assert json.loads(server.requests[0].content)["array"] == section


def test_watch_option_continues_until_the_array_completes(terminal: Terminal) -> None:
    server = StubServer(
        json_answer({**array(), "warnings": []}, 201),
        json_answer(array(running=10, held=90)),
        json_answer(array(running=10, held=90)),
        json_answer(array(state="failed", completed=98, failed=2)),
    )
    result = terminal.run("submit", "--array", "0-99", "--watch", "-f", "-", server=server, input=SWEEP)
    assert result.exit_code == 10
    assert result.stderr.splitlines() == [
        "vision/sweep is active: 0 of 100 ended, 10 running, 90 held",
        "vision/sweep is failed: 100 of 100 ended (2 failed)",
    ]


def test_follow_option_is_rejected_for_an_array(terminal: Terminal) -> None:
    result = terminal.run("submit", "--array", "0-9", "--follow", "-f", "-", input=SWEEP)
    assert result.exit_code == 2
    assert "--watch" in result.stderr


def test_workload_list_shows_one_row_per_array(terminal: Terminal) -> None:
    server = StubServer(
        lambda request: page(
            [array(running=10, completed=40, failed=2, held=48)]
            if request.url.path.endswith("arrays")
            else [workload("alone", submitted_at="2025-01-01T00:00:00Z")]
        )
    )
    result = terminal.run("list", server=server)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:4] for row in rows[1:]] == [
        ["sweep[100]", "vision", "active", "10/58"],
        ["alone", "vision", "running", "4/4"],
    ]
    assert "42 of 100 ended (2 failed), 10 running, 48 held" in result.stdout
    assert any("in_array=false" in call for call in server.calls)


@pytest.mark.parametrize("option", ["--tasks", "-t", "--phase=running"])
def test_workload_list_shows_array_tasks_if_an_option_requires_them(terminal: Terminal, option: str) -> None:
    server = StubServer(page([workload("sweep-0")]))
    assert "sweep-0" in terminal.run("list", option, server=server).stdout
    (call,) = server.calls
    assert "in_array" not in call


def test_selected_array_tasks_are_cancelled(terminal: Terminal) -> None:
    server = StubServer(
        page([array()]), json_answer(array()), json_answer({"changed": 11, "array": array(cancelled=11)})
    )
    result = terminal.run("cancel", "sweep[0-9,50]", server=server)
    assert result.stdout == "vision/sweep: 11 tasks cancelled\n"
    assert json.loads(server.requests[-1].content) == {"indexes": ["0-9", "50"]}
    assert terminal.run("cancel", "sweep[x]", server=StubServer(page([array()]))).exit_code == 2


def test_retry_of_a_task_sends_its_index(terminal: Terminal) -> None:
    task = {"id": array()["id"], "index": 7, "attempt": 1, "superseded": False, "held": False}
    row = workload("sweep-7", phase="failed", array=task, spec={}, images=[])
    server = StubServer(
        page([row]), json_answer(row), page([]), json_answer({"changed": 1, "array": array(pending=1)})
    )
    result = terminal.run("retry", "sweep-7", "--dry-run", server=server)
    assert result.stdout == "vision/sweep: 1 task to be submitted again\n"
    assert server.calls[-1] == f"POST /api/v1/arrays/{array()['id']}/retry?dry_run=true"
    assert json.loads(server.requests[-1].content) == {"indexes": [7]}


def test_retry_is_rejected_for_a_workload_outside_an_array(terminal: Terminal) -> None:
    row = {**workload(), "spec": {}, "images": []}
    result = terminal.run("retry", "train", server=StubServer(page([row]), json_answer(row)))
    assert result.exit_code == 2
    assert "berth resubmit vision/train" in result.stderr


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_array_commands_work_with_a_real_server(
    berth: Berth, cast: Cast, live_server: Any, tmp_path: Path
) -> None:
    token = {"BERTH_TOKEN": token_of(cast.dave), "BERTH_PROJECT": "vision"}
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)

    def run(*arguments: str) -> str:
        done = berth(*arguments, **token)
        assert done.returncode == 0, done.stderr
        return done.stdout

    predicted = run("submit", "--array", "0-19%2", str(file), "--dry-run")
    assert predicted.startswith(
        "array of 20 tasks, at most 2 at a time: 20 would be queued\nthe first task:\n"
    )
    assert "\nsweep-0: would" in predicted
    assert run("submit", "--array", "0-19%2", str(file)) == "vision/sweep[20] submitted\n"
    assert "0 of 20 ended, 2 pending, 18 held" in run("list")
    assert "sweep-0" in run("list", "-t")
    described = run("describe", "sweep")
    assert "Progress    0 of 20 ended, 2 pending, 18 held" in described
    assert "max_running: 2" in run("describe", "sweep", "--spec")
    assert "17 tasks before this one" in run("why", "sweep-19")
    assert run("suspend", "sweep[0-4]", "--dry-run") == "vision/sweep: 5 tasks to be suspended\n"
    assert run("suspend", "sweep") == "vision/sweep: 20 tasks suspended\n"
    assert run("resume", "sweep") == "vision/sweep: 20 tasks resumed\n"
    limit = "array.max_running"
    assert run("edit", "sweep", "--set", f"{limit}=1", "--dry-run") == (
        "vision/sweep would run at most 1 task at a time\n"
    )
    assert run("edit", "sweep", "--unset", limit) == "vision/sweep runs any number of tasks at a time\n"
    assert run("edit", "sweep", "--set", f"{limit}=2") == "vision/sweep runs at most 2 tasks at a time\n"
    for arguments in (("--set", "priority=60"), ("--set", f"{limit}=3", "--set", "array.tasks=9"), ()):
        rejected = berth("edit", "sweep", *arguments, **token)
        assert rejected.returncode == 2
        assert "only array.max_running can be edited" in rejected.stderr
    assert run("cancel", "sweep[0-9]") == "vision/sweep: 10 tasks cancelled\n"
    assert run("retry", "sweep[3-4]") == "vision/sweep: 2 tasks submitted again\n"
    assert run("cancel", "sweep-3") == "vision/sweep-3 is cancelled\n"
    assert run("cancel", "sweep") == "vision/sweep: 11 tasks cancelled\n"
    assert run("list") == ""
    assert "cancelled" in run("list", "--all")
    attempts = json.loads(run("list", "--all", "--array", "sweep", "-o", "json"))
    assert sorted(row["array"]["index"] for row in attempts) == sorted([*range(20), 3, 4])
    assert Workload.objects.exclude(phase=Phase.CANCELLED).count() == 0
    assert run("delete", "sweep") == "vision/sweep deleted\n"
    assert not WorkloadArray.objects.exists()


def test_list_shows_the_cost_of_arrays_in_wide_tables_only(terminal: Terminal) -> None:
    costly = {**array(), "cost": {"amount": "12.4000", "currency": "USD"}}
    server = StubServer(page([]), page([costly]))
    shown = terminal.run("list", "-o", "wide", server=server, env={"COLUMNS": "400"}).stdout
    assert "12.40 USD" in shown
    costs = {request.url.path: request.url.params.get("costs") for request in server.requests}
    assert costs == {"/api/v1/workloads": None, "/api/v1/arrays": "true"}
    narrow = StubServer(page([]), page([array()]))
    assert terminal.run("list", server=narrow).exit_code == 0
    assert not any("costs" in request.url.params for request in narrow.requests)
