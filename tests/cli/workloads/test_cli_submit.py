"""Tests for `berth submit` and for following its logs."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.cli.printing import following
from berth.client import Settings
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page, pod, problem, workload

CREATED = httpx.Response(201, json=workload(phase="pending"))
NO_GPU = {"path": "roles[0].gpu", "message": "too many", "received": "9", "allowed": "at most 8"}


def test_submit_options_are_sent_as_a_document(terminal: Terminal) -> None:
    server = StubServer(CREATED)
    result = terminal.run(
        "submit", "-n", "train", "-p", "vision", "-g", "1", "--", "python", "a.py", "-v", server=server
    )
    assert result.stdout == "vision/train submitted\n"
    assert json.loads(server.requests[0].content) == {
        "name": "train", "project": "vision", "roles": [{"gpu": 1}], "command": ["python", "a.py", "-v"],
    }  # fmt: skip


def batch(*names: str, rejected: str = "") -> httpx.Response:
    error = {"code": "conflict", "detail": "vision already has a live workload named b.", "errors": []}
    items: list[dict[str, Any]] = [
        {
            "workload": None if name == rejected else workload(name, phase="pending"),
            "warnings": [],
            "error": error if name == rejected else None,
        }
        for name in names
    ]
    return httpx.Response(200, json={"stored": len(names), "rejected": 0, "items": items})


@pytest.mark.parametrize("options", [("-f", "two.yaml", "-f", "one.json"), ("two.yaml", "one.json")])
def test_documents_from_several_files_are_submitted_in_one_request(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.yaml").write_text("name: a\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpu: 1}]\n")
    Path("one.json").write_text('{"name": "c", "roles": [{"gpu": 1}], "deadline": "2030-01-01T00:00:00Z"}')
    server = StubServer(batch("a", "b", "c"))
    result = terminal.run("submit", *options, server=server)
    assert server.calls == ["POST /api/v1/workloads:batch"]
    body = json.loads(server.requests[0].content)
    assert ([item["name"] for item in body["items"]], body["atomic"]) == (["a", "b", "c"], False)
    assert result.stdout == "vision/a submitted\nvision/b submitted\nvision/c submitted\n"


def test_rejected_batch_identifies_the_document_and_exits_with_code_2(terminal: Terminal) -> None:
    typed = "name: a\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpu: 1}]\n"
    result = terminal.run("submit", "-f", "-", server=StubServer(batch("a", "b", rejected="b")), input=typed)
    assert (result.exit_code, result.stdout) == (2, "vision/a submitted\n")
    assert result.stderr == "berth: stdin, document 2: vision already has a live workload named b.\n"


def test_more_than_a_thousand_documents_are_split_into_several_requests(terminal: Terminal) -> None:
    names = [f"w{number}" for number in range(1001)]
    typed = "\n---\n".join(f"name: {name}\nroles: [{{gpu: 1}}]" for name in names)
    server = StubServer(batch(*names[:1000]), batch(names[1000]))
    assert terminal.run("submit", "-f", "-", server=server, input=typed).exit_code == 0
    sizes = [len(json.loads(request.content)["items"]) for request in server.requests]
    assert sizes == [1000, 1]
    rejected = terminal.run("submit", "-f", "-", "--atomic", server=server, input=typed)
    assert (rejected.exit_code, len(server.requests)) == (2, 2)


def test_default_project_applies_to_documents_without_a_project(terminal: Terminal) -> None:
    server = StubServer(batch("a", "b"))
    typed = "name: a\nroles: [{gpu: 1}]\n---\nname: b\nproject: ads\nroles: [{gpu: 1}]\n"
    settings = Settings("http://127.0.0.1:8000", "t", "speech")
    terminal.run("submit", "-f", "-", "--atomic", server=server, settings=settings, input=typed)
    body = json.loads(server.requests[0].content)
    assert ([item["project"] for item in body["items"]], body["atomic"]) == (["speech", "ads"], True)


def test_atomic_submission_of_an_array_with_other_documents_is_rejected(terminal: Terminal) -> None:
    typed = "name: a\nroles: [{gpu: 1}]\narray: {tasks: 2}\n---\nname: b\nroles: [{gpu: 1}]\n"
    result = terminal.run("submit", "-f", "-", "--atomic", input=typed)
    assert result.exit_code == 2
    assert "Submit each array by itself: an array is always submitted atomically." in result.stderr


def test_one_invalid_document_prevents_the_whole_submission(terminal: Terminal) -> None:
    typed = "name: a\nroles: [{gpu: 1}]\n---\nname: b\nroles: [{gpu: 1.5}]\n"
    result = terminal.run("submit", "-f", "-", input=typed)
    assert result.exit_code == 2
    assert "stdin, document 2: roles[0].gpu: a fraction of a device must be below 1" in result.stderr


def test_error_names_the_option_with_an_invalid_value(terminal: Terminal) -> None:
    result = terminal.run("submit", "-n", "train", "-g", "1.5", "--", "true")
    assert result.exit_code == 2
    assert result.stderr.startswith("berth: --gpu: ")
    assert "received 1.5; allowed: a whole number from 0 to 1024" in result.stderr


def test_each_server_error_is_printed_on_one_line(terminal: Terminal) -> None:
    result = terminal.run(
        "submit", "-n", "t", "-g", "9", server=StubServer(problem(422, errors=[NO_GPU, NO_GPU]))
    )
    assert result.exit_code == 2
    assert result.stderr == "berth: roles[0].gpu: too many; received 9; allowed: at most 8.\n" * 2


def test_duplicate_key_in_a_document_is_rejected(terminal: Terminal) -> None:
    result = terminal.run("submit", "-f", "-", input="name: a\nname: b\n")
    assert result.exit_code == 2
    assert "name is set twice on line 2" in result.stderr


def test_file_cannot_be_combined_with_role_options(terminal: Terminal) -> None:
    result = terminal.run("submit", "-f", "-", "--gpu", "1", input="name: a\n")
    assert result.exit_code == 2
    assert "--file cannot be combined with --gpu" in result.stderr


def test_training_job_manifest_is_sent_with_the_project_as_its_namespace(terminal: Terminal) -> None:
    manifest = {
        "apiVersion": "v1", "kind": "TrainingJob", "metadata": {"name": "old"},
        "spec": {"trainer": {"entrypoint": "true", "min-instance": 1, "max-instance": 2}},
    }  # fmt: skip
    server = StubServer(CREATED)
    result = terminal.run("submit", "-f", "-", "-p", "vision", server=server, input=json.dumps(manifest))
    assert result.exit_code == 0, result.output
    assert json.loads(server.requests[0].content)["metadata"] == {"name": "old", "namespace": "vision"}


@pytest.mark.parametrize(
    ("outcome", "printed"),
    [("would_stay_pending", "would stay pending"), ("unschedulable", "unschedulable")],
)
def test_dry_run_prints_outcome_blockers_and_smallest_change(
    terminal: Terminal, outcome: str, printed: str
) -> None:
    answer = {
        "outcome": outcome, "workload": {"name": "train"}, "decisions": [], "evictions": [],
        "blockers": [{"reason": "WouldExceedFairShare", "message": "It holds all of its share."}],
    }  # fmt: skip
    response = {
        "outcome": "change",
        "sentence": "It would start with 1 GPU.",
        "change": {"kind": "request_lowered"},
    }
    server = StubServer(httpx.Response(200, json=answer), httpx.Response(200, json=response))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    assert server.calls == ["POST /api/v1/workloads?dry_run=true", "POST /api/v1/workloads:smallest-change"]
    assert result.stdout.splitlines() == [
        f"train: {printed}", "  WouldExceedFairShare: It holds all of its share.",
        "  It would start with 1 GPU.",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [200, 404, 429])
def test_dry_run_without_a_smallest_change_shows_only_the_prediction(terminal: Terminal, status: int) -> None:
    answer = {"outcome": "would_stay_pending", "workload": {"name": "train"}}
    response = {"outcome": "no_change", "sentence": "None."}
    second = httpx.Response(200, json=response) if status == 200 else problem(status, detail="Not now.")
    server = StubServer(httpx.Response(200, json=answer), second)
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    assert (result.exit_code, result.stdout) == (0, "train: would stay pending\n")


@pytest.mark.parametrize(("nodes", "words"), [(1, "1 node has"), (3, "3 nodes have")])
def test_dry_run_states_how_many_nodes_must_boot(terminal: Terminal, nodes: int, words: str) -> None:
    answer = {"outcome": "would_stay_pending", "workload": {"name": "train"}, "nodes_to_boot": nodes}
    server = StubServer(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    assert result.stdout == f"train: would start after {words} booted\n"


def test_dry_run_states_when_its_prediction_may_change(terminal: Terminal) -> None:
    answer = {
        "outcome": "would_stay_pending", "workload": {"name": "train"}, "nodes_to_boot": 1,
        "may_change_at": "2026-11-29T18:53:00Z",
    }  # fmt: skip
    server = StubServer(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    at = datetime(2026, 11, 29, 18, 53, tzinfo=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    expected = f"  The prediction may change at {at}, when the restart delay of a pending workload ends."
    assert result.stdout.splitlines()[1:] == [expected]


def test_dry_run_explains_the_queue_position(terminal: Terminal) -> None:
    answer = {
        "outcome": "would_stay_pending", "workload": {"name": "train"}, "queue_position": 2,
        "queue_position_reason": "first is ahead because it was submitted earlier",
    }  # fmt: skip
    server = StubServer(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    expected = "  Queue position 2: first is ahead because it was submitted earlier."
    assert expected in result.stdout.splitlines()


def test_dry_run_prints_one_line_per_eviction(terminal: Terminal) -> None:
    pods = [{"role": "worker", "index": index, "node": node} for index, node in enumerate(["n0", "n1", "n1"])]
    answer = {
        "outcome": "would_evict", "workload": {"name": "train"},
        "decisions": [{"kind": "reclaim", "message": "1 stopped, by reclaim", "pods": pods}],
    }  # fmt: skip
    server = StubServer(httpx.Response(200, json=answer))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--dry-run", server=server)
    expected = "train: would evict\n  reclaim 1 pod on n0, 2 pods on n1: 1 stopped, by reclaim\n"
    assert (result.exit_code, result.stdout) == (0, expected)


@pytest.mark.parametrize("output", ["table", "json"])
def test_invalid_dry_run_exits_with_code_2(terminal: Terminal, output: str) -> None:
    server = StubServer(
        httpx.Response(200, json={"outcome": "invalid", "workload": None, "errors": [NO_GPU]})
    )
    result = terminal.run("submit", "-n", "t", "-g", "9", "--dry-run", "-o", output, server=server)
    assert result.exit_code == 2
    if output == "json":
        assert json.loads(result.stdout)["errors"] == [NO_GPU]
    else:
        assert result.stdout == ""
        assert result.stderr == "berth: roles[0].gpu: too many; received 9; allowed: at most 8.\n"


@pytest.mark.parametrize(("phase", "code"), [("completed", 0), ("failed", 10), ("cancelled", 11)])
def test_exit_code_of_the_watch_option_matches_the_final_phase(
    terminal: Terminal, phase: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REFRESH_SECONDS", 0)
    server = StubServer(CREATED, CREATED, httpx.Response(200, json=workload(phase=phase)))
    result = terminal.run("submit", "-n", "train", "-g", "1", "--watch", server=server)
    assert result.exit_code == code
    assert f"vision/train is {phase}" in result.stderr


def test_followed_log_continues_with_the_next_run_after_an_eviction(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(following, "SLOW_PAUSE_SECONDS", 0)

    def response(phase: str, run: int, reason: str = "") -> httpx.Response:
        return httpx.Response(200, json=workload(phase=phase, run=run, reason=reason))

    server = StubServer(
        page([workload(phase="running", run=1)]), response("running", 1), page([pod(1)]),
        httpx.Response(200, content=b"step 1\n"),
        response("pending", 1, "WaitingForCapacity"), page([pod(1)]),
        response("running", 2), page([pod(2)]), httpx.Response(200, content=b"resumed at step 1\n"),
        response("completed", 2), page([pod(2)]),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", server=server)
    assert result.exit_code == 0, result.output
    assert result.stdout == "step 1\nresumed at step 1\n"
    assert "vision/train is pending (WaitingForCapacity)" in result.stderr


@pytest.mark.parametrize("read_whole", [True, False])
def test_followed_log_reports_the_end_of_the_workload_after_the_last_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, read_whole: bool
) -> None:
    # The workload may end before or while its output is read.
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)
    order: list[str] = []

    def write(output: following.TerminalOutput, piece: bytes) -> None:
        order.append(piece.decode())

    def report(ended: Any) -> None:
        order.append(ended.phase)

    monkeypatch.setattr(following.TerminalOutput, "_write_text", write)
    monkeypatch.setattr(following, "print_change", report)
    first = "completed" if read_whole else "running"
    ended = httpx.Response(200, json=workload(phase="completed", run=1))
    server = StubServer(
        page([workload(phase=first, run=1)]), httpx.Response(200, json=workload(phase=first, run=1)),
        page([pod()]), httpx.Response(200, content=b"last line\n"), ended, page([pod()]),
    )  # fmt: skip
    assert terminal.run("logs", "-f", "train", server=server).exit_code == 0
    assert order == [*(["running"] if first == "running" else []), "last line\n", "completed"]


def test_followed_log_resumes_at_the_last_byte_after_a_lost_connection(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0)

    class Breaks(httpx.SyncByteStream):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield b"step 1\n"
            raise httpx.ReadError("gone")

    running = httpx.Response(200, json=workload(run=1))
    server = StubServer(
        page([workload(run=1)]), running, page([pod()]),
        httpx.Response(200, stream=Breaks()), httpx.Response(200, content=b"step 2\n"),
        httpx.Response(200, json=workload(phase="completed", run=1)), page([pod()]),
    )  # fmt: skip
    result = terminal.run("logs", "-f", "train", server=server)
    assert result.stdout == "step 1\nstep 2\n"
    assert server.requests[4].url.params["offset"] == "7"
