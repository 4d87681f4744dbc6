"""`berth submit`: what it sends, refuses and returns."""

import json
from pathlib import Path

import httpx
import pytest

from berth.cli import following
from berth.client import Settings
from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem, workload

TAKEN = httpx.Response(201, json=workload(phase="pending"))
NO_GPU = {"path": "roles[0].gpu", "message": "too many", "received": "9", "allowed": "at most 8"}


def test_the_document_is_sent_as_it_was_written(terminal: Terminal) -> None:
    desk = Desk(TAKEN)
    result = terminal.run(
        "submit", "-n", "train", "-p", "vision", "-g", "1", "--", "python", "a.py", "-v", desk=desk
    )
    assert result.stdout == "vision/train submitted\n"
    assert json.loads(desk.requests[0].content) == {
        "name": "train", "project": "vision", "roles": [{"gpu": 1}], "command": ["python", "a.py", "-v"],
    }  # fmt: skip


def test_several_documents_of_several_files_are_submitted(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("name: a\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpu: 1}]\n")
    one = '{"name": "c", "roles": [{"gpu": 1}], "deadline": "2030-01-01T00:00:00Z"}'
    (tmp_path / "one.json").write_text(one)
    desk = Desk(TAKEN)
    terminal.run("submit", "-f", str(tmp_path / "two.yaml"), "-f", str(tmp_path / "one.json"), desk=desk)
    assert [json.loads(request.content)["name"] for request in desk.requests] == ["a", "b", "c"]


def test_the_default_project_is_for_documents_that_name_none(terminal: Terminal) -> None:
    desk = Desk(TAKEN)
    typed = "name: a\nroles: [{gpu: 1}]\n---\nname: b\nproject: ads\nroles: [{gpu: 1}]\n"
    settings = Settings("http://127.0.0.1:8000", "t", "speech")
    terminal.run("submit", "-f", "-", desk=desk, settings=settings, input=typed)
    assert [json.loads(request.content)["project"] for request in desk.requests] == ["speech", "ads"]


def test_one_bad_document_among_good_ones_sends_nothing(terminal: Terminal) -> None:
    typed = "name: a\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpu: 1.5}]\n"
    result = terminal.run("submit", "-f", "-", input=typed)
    assert result.exit_code == 2
    assert "stdin, document 2: roles[0].gpu: a part of a device cannot be above one device" in result.stderr


def test_a_wrong_option_is_named_as_it_was_typed(terminal: Terminal) -> None:
    result = terminal.run("submit", "-n", "train", "-g", "1.5", "--", "true")
    assert result.exit_code == 2
    assert result.stderr.startswith("berth: --gpu: ")
    assert "received 1.5; allowed: a whole number from 0 to 1024" in result.stderr


def test_what_the_server_finds_wrong_is_one_line_each(terminal: Terminal) -> None:
    result = terminal.run("submit", "-n", "t", "-g", "9", desk=Desk(problem(422, errors=[NO_GPU, NO_GPU])))
    assert result.exit_code == 2
    assert result.stderr == "berth: roles[0].gpu: too many; received 9; allowed: at most 8\n" * 2


def test_a_key_given_twice_is_refused(terminal: Terminal) -> None:
    result = terminal.run("submit", "-f", "-", input="name: a\nname: b\n")
    assert result.exit_code == 2
    assert "name is given twice in line 2" in result.stderr


def test_a_file_and_options_that_describe_are_refused_together(terminal: Terminal) -> None:
    result = terminal.run("submit", "-f", "-", "--gpu", "1", input="name: a\n")
    assert result.exit_code == 2
    assert "--file and --gpu exclude each other" in result.stderr


def test_an_older_manifest_is_sent_as_it_stands(terminal: Terminal) -> None:
    manifest = {
        "apiVersion": "v1", "kind": "TrainingJob", "metadata": {"name": "old"},
        "spec": {"trainer": {"entrypoint": "true", "min-instance": 1, "max-instance": 2}},
    }  # fmt: skip
    desk = Desk(TAKEN)
    result = terminal.run("submit", "-f", "-", "-p", "vision", desk=desk, input=json.dumps(manifest))
    assert result.exit_code == 0, result.output
    assert json.loads(desk.requests[0].content)["metadata"] == {"name": "old", "namespace": "vision"}


def test_a_dry_run_stores_nothing_and_says_what_would_happen(terminal: Terminal) -> None:
    answer = {
        "outcome": "would_wait", "workload": {"name": "train"}, "decisions": [], "evictions": [],
        "blockers": [{"reason": "OverFairShare", "message": "It holds all of its share."}],
    }  # fmt: skip
    desk = Desk(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", desk=desk)
    assert desk.asked == ["POST /api/v1/workloads?dry_run=true"]
    assert result.stdout == "train: would wait\n  OverFairShare: It holds all of its share.\n"


def test_a_dry_run_says_in_one_line_each_whom_it_would_evict(terminal: Terminal) -> None:
    pods = [{"role": "worker", "index": index, "node": node} for index, node in enumerate(["n0", "n1", "n1"])]
    answer = {
        "outcome": "would_evict", "workload": {"name": "train"},
        "decisions": [{"kind": "reclaim", "message": "1 stopped, by reclaim", "pods": pods}],
    }  # fmt: skip
    desk = Desk(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", desk=desk)
    told = "train: would evict\n  reclaim 1 pod on n0, 2 pods on n1: 1 stopped, by reclaim\n"
    assert (result.exit_code, result.stdout) == (0, told)


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_dry_run_of_what_would_be_refused_is_bad_input(terminal: Terminal, output: str) -> None:
    desk = Desk(httpx.Response(200, json={"outcome": "invalid", "workload": None, "errors": [NO_GPU]}))
    result = terminal.run("submit", "-n", "t", "-g", "9", "--dry-run", "-o", output, desk=desk)
    assert result.exit_code == 2
    if output == "json":
        assert json.loads(result.stdout)["errors"] == [NO_GPU]
    else:
        assert result.stdout == ""
        assert result.stderr == "berth: roles[0].gpu: too many; received 9; allowed: at most 8\n"


@pytest.mark.parametrize(("phase", "code"), [("completed", 0), ("failed", 10), ("cancelled", 11)])
def test_watching_ends_as_the_workload_did(
    terminal: Terminal, phase: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REFRESH_SECONDS", 0)
    desk = Desk(TAKEN, TAKEN, httpx.Response(200, json=workload(phase=phase)))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--watch", desk=desk)
    assert result.exit_code == code
    assert f"vision/train is {phase}" in result.stderr


def test_following_goes_through_an_eviction_to_the_next_run(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(following, "SLOW_PAUSE_SECONDS", 0)

    def pods(run: int) -> httpx.Response:
        return page([{"id": f"p{run}", "role": "worker", "index": 0, "run": run, "state": "running"}])

    def now_(phase: str, run: int, reason: str = "") -> httpx.Response:
        return httpx.Response(200, json=workload(phase=phase, run=run, reason=reason))

    desk = Desk(
        page([workload(phase="running", run=1)]), now_("running", 1), pods(1),
        httpx.Response(200, content=b"step 1\n"), now_("pending", 1, "WaitingForCapacity"), pods(1),
        now_("running", 2), pods(2), httpx.Response(200, content=b"resumed at step 1\n"),
        now_("completed", 2), pods(2),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", desk=desk)
    assert result.exit_code == 0, result.output
    assert result.stdout == "step 1\nresumed at step 1\n"
    assert "vision/train is pending (WaitingForCapacity)" in result.stderr


def test_a_log_that_broke_off_goes_on_where_it_stopped(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)

    class Breaks(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield b"step 1\n"
            raise httpx.ReadError("gone")

    running = httpx.Response(200, json=workload(run=1))
    pods = [{"id": "p", "role": "worker", "index": 0, "run": 1}]
    desk = Desk(
        page([workload(run=1)]), running, page(pods),
        httpx.Response(200, stream=Breaks()), httpx.Response(200, content=b"step 2\n"),
        httpx.Response(200, json=workload(phase="completed", run=1)), page(pods),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", desk=desk)
    assert result.stdout == "step 1\nstep 2\n"
    assert desk.requests[4].url.params["offset"] == "7"
