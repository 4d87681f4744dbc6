"""Tests for `berth files`."""

import tarfile
from pathlib import Path
from typing import Any

import httpx

from tests.cli.terminal import Terminal
from tests.cli.workloads.test_cli_outputs import FOUND, archive
from tests.client.stub_server import TIME, StubServer, page


def test_failed_pods_and_their_files_are_listed(terminal: Terminal) -> None:
    pods: list[dict[str, Any]] = [
        {"id": "1", "role": "worker", "index": 0, "run": 2, "node": "gpu-1", "files_until": TIME,
         "exit_code": 3, "since": TIME, "created_at": TIME},
        {"id": "2", "role": "worker", "index": 1, "run": 2, "node": "gpu-1", "files_until": None,
         "message": "", "since": TIME, "created_at": TIME},
    ]  # fmt: skip
    result = terminal.run("files", "pods", "train", server=StubServer(*FOUND, page(pods)))
    assert (result.stdout.split("\n")[1].split()[:4], "worker-1" in result.stdout) == (
        ["worker-0", "2", "gpu-1", "3"], False,
    )  # fmt: skip
    server = StubServer(*FOUND, page([{"path": "pod/a", "size": 7}]))
    result = terminal.run("files", "list", "train", "pod", "--pod", "worker-1", server=server)
    assert result.stdout.split() == ["PATH", "SIZE", "pod/a", "7", "B"]
    assert dict(server.requests[-1].url.params) == {"path": "pod", "pod": "worker-1", "limit": "10000"}


def test_files_are_printed_downloaded_and_deleted(terminal: Terminal, tmp_path: Path) -> None:
    server = StubServer(*FOUND, httpx.Response(200, content=b"core\n"))
    assert terminal.run("files", "cat", "train", "pod/a", server=server).stdout == "core\n"
    server = StubServer(*FOUND, archive((tarfile.TarInfo("tmp/a"), b"new")))
    result = terminal.run("files", "download", "train", "tmp", "--to", str(tmp_path), server=server)
    assert (result.stdout, (tmp_path / "tmp/a").read_text()) == (f"1 file written to {tmp_path}\n", "new")
    server = StubServer(*FOUND, httpx.Response(204))
    result = terminal.run("files", "delete", "train", "--run", "2", server=server)
    assert result.stdout == "Files of failed pods of vision/train deleted\n"
    assert (server.requests[-1].method, server.requests[-1].url.params["run"]) == ("DELETE", "2")
