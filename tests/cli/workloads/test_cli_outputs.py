"""Tests for `berth outputs`."""

import io
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.cli.commands.pods.outputs import format_size
from tests.cli.terminal import Terminal
from tests.cli.workloads.test_cli_arrays import json_answer
from tests.cli.workloads.test_cli_metrics import array_server, metric
from tests.client.stub_server import TIME, StubServer, page, workload

TRAIN = workload("train")
FOUND = (page([TRAIN]), json_answer(TRAIN))


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> httpx.Response:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return httpx.Response(200, content=buffer.getvalue())


def test_pods_and_files_are_listed(terminal: Terminal) -> None:
    row: dict[str, Any] = {
        "pod": "worker-0", "run": 2, "paths": ["results"], "state": "stored", "message": "", "size": 2048,
        "skipped": {"results/link": "is a symbolic link"}, "files": 3, "stored_at": TIME,
    }  # fmt: skip
    volume = {**row, "paths": [], "volume": "ckpt", "skipped": {}, "files": 1, "size": 9, "deleted": 2}
    result = terminal.run("outputs", "list", "train", server=StubServer(*FOUND, page([row, volume])))
    assert [" ".join(line.split()) for line in result.stdout.splitlines()[1:]] == [
        "worker-0 2 - stored 3 2.0 KiB Left out: results/link is a symbolic link.",
        "worker-0 2 ckpt stored 1 9 B 2 objects deleted.",
    ]
    server = StubServer(*FOUND, page([{"path": "results/a", "size": 7}]))
    result = terminal.run("outputs", "files", "train", "--pod", "worker-1", server=server)
    assert result.stdout.split() == ["PATH", "SIZE", "results/a", "7", "B"]
    assert server.requests[-1].url.params["pod"] == "worker-1"
    result = terminal.run("outputs", "list", "train", server=StubServer(*FOUND, page([])))
    assert result.stderr == "vision/train has no outputs.\n"


def test_downloaded_files_are_written_below_the_directory(terminal: Terminal, tmp_path: Path) -> None:
    script = tarfile.TarInfo("results/run.sh")
    script.mode = 0o755
    server = StubServer(*FOUND, archive((tarfile.TarInfo("results/a.txt"), b"new"), (script, b"#!/bin/sh\n")))
    (tmp_path / "best" / "results").mkdir(parents=True)
    (tmp_path / "best" / "results" / "a.txt").write_text("older and longer")
    result = terminal.run(
        "outputs", "download", "train", "results", "--to", str(tmp_path / "best"), server=server
    )
    assert result.stdout == f"2 files written to {tmp_path / 'best'}\n", result.stderr
    assert (tmp_path / "best" / "results" / "a.txt").read_text() == "new"
    assert (tmp_path / "best" / "results" / "run.sh").stat().st_mode & 0o100
    assert server.requests[-1].url.params["path"] == "results"


@pytest.mark.parametrize("name", ["../evil", "/evil", "link"])
def test_archive_with_a_path_outside_the_directory_is_rejected(
    terminal: Terminal, tmp_path: Path, name: str
) -> None:
    member = tarfile.TarInfo(name)
    if name == "link":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    result = terminal.run(
        "outputs",
        "download",
        "train",
        "--to",
        str(tmp_path / "to"),
        server=StubServer(*FOUND, archive((member, b""))),
    )
    assert (result.exit_code != 0, list((tmp_path / "to").iterdir())) == (True, [])


def test_sizes_are_formatted_with_units() -> None:
    assert [format_size(size) for size in (0, 1023, 1024, 5 * 2**30, 2**50)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "1024.0 TiB",
    ]  # fmt: skip


def unread(tasks: int) -> httpx.Response:
    return json_answer({"names": ["accuracy"], "unread_tasks": tasks})


def test_best_task_of_an_array_is_downloaded(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.cli.commands.pods.outputs.PAUSE_SECONDS", 0.0)
    row = {
        "index": 3, "workload": "sweep-3", "id": TRAIN["id"], "phase": "completed",
        "best": {"step": 9, "value": 0.875}, "metric": metric("accuracy", 0.875),
    }  # fmt: skip
    server = array_server(
        unread(2), unread(1), unread(0), page([row]), archive((tarfile.TarInfo("model.bin"), b"m"))
    )
    command = ("outputs", "download", "sweep", "--best", "accuracy", "--goal", "max", "--to", str(tmp_path))
    result = terminal.run(*command, server=server)
    assert result.stdout == f"Best task: sweep-3 (accuracy 0.875)\n1 file written to {tmp_path}\n", (
        result.stderr
    )
    assert result.stderr == "Waiting for the last reports of 2 tasks ...\n"
    ranking, downloaded = server.requests[-2:]
    assert (ranking.url.params["name"], ranking.url.params["goal"]) == ("accuracy", "max")
    assert f"/workloads/{TRAIN['id']}/" in str(downloaded.url)


def test_best_flag_requires_an_array_that_reports_the_metric(terminal: Terminal) -> None:
    command = ("outputs", "download", "train", "--best", "loss")
    result = terminal.run(*command, server=StubServer(*FOUND))
    assert (result.exit_code, "--best requires the name of an array" in result.stderr) == (2, True)
    result = terminal.run(
        "outputs", "download", "sweep", "--best", "loss", server=array_server(unread(0), page([]))
    )
    assert (result.exit_code, "No task of vision/sweep has reported loss." in result.stderr) == (2, True)
