"""Tests that reading a pod's files never leaves the pod's directory."""

import os
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from pools.runtimes.base import RuntimeFailure
from pools.runtimes.files import reading
from pools.runtimes.files.base import FilesNotFound, PodFiles
from pools.runtimes.files.reading import DEPTH_MAX, SKIPPED_MAX, list_files, read_file
from pools.runtimes.ray.agents import NodeAgent
from pools.runtimes.ray.files import RayFiles
from pools.runtimes.ray.node.agent import CONCURRENT, Agent
from tests.support.ports import free_port


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Create a pod's directory with files, and a file outside it that the pod must not reach."""
    (tmp_path / "secret").write_text("secret")
    work = tmp_path / "work"
    (work / "results" / "deep").mkdir(parents=True)
    (work / "results" / "model.bin").write_bytes(b"0123456789")
    (work / "results" / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (work / "results" / "deep" / "run.sh").chmod(0o755)
    (work / "log.csv").write_text("a,b\n")
    return work


def test_files_under_the_requested_paths_are_listed_and_read(work: Path) -> None:
    listed = list_files(str(work), "", ["results", "log.csv", "none"])
    assert [(file.path, file.size, file.executable) for file in listed.files] == [
        ("log.csv", 4, False), ("results/deep/run.sh", 10, True), ("results/model.bin", 10, False),
    ]  # fmt: skip
    assert listed.skipped == {"none": "No such file or directory"}
    assert read_file(str(work), "", "results/model.bin", 4, 3) == b"456"
    assert read_file(str(work), "", "results/model.bin", 10, 3) == b""
    assert [file.path for file in list_files(str(work), "results", ["deep"]).files] == ["deep/run.sh"]
    assert read_file(str(work), "results", "model.bin", 0, 100) == b"0123456789"


def test_links_and_special_files_are_omitted(work: Path) -> None:
    results = work / "results"
    (results / "link").symlink_to("../../secret")
    (results / "directory").symlink_to("/etc")
    os.link(work.parent / "secret", results / "hard")
    os.mkfifo(results / "pipe")
    (results / os.fsdecode(b"\xff")).mkdir()
    listed = list_files(str(work), "", ["results"])
    assert [file.path for file in listed.files] == ["results/deep/run.sh", "results/model.bin"]
    assert listed.skipped == {
        "results/directory": "is a symbolic link", "results/hard": "has several hard links",
        "results/link": "is a symbolic link", "results/pipe": "is not a regular file",
        "results/?": "is not a UTF-8 path",
    }  # fmt: skip


@pytest.mark.parametrize(
    "path", ["link", "hard", "pipe", "directory/passwd", "../secret", "/etc/passwd", "none", ""]
)
def test_file_outside_the_pods_directory_cannot_be_read(work: Path, path: str) -> None:
    (work / "link").symlink_to("../secret")
    (work / "directory").symlink_to("/etc")
    os.link(work.parent / "secret", work / "hard")
    os.mkfifo(work / "pipe")
    with pytest.raises(FilesNotFound):
        read_file(str(work), "", path, 0, 10)


def test_directory_replaced_with_a_link_cannot_be_read(work: Path) -> None:
    (work / "code").symlink_to("/etc")
    with pytest.raises(FilesNotFound):
        list_files(str(work), "code", ["passwd"])
    with pytest.raises(FilesNotFound):
        read_file(str(work), "code", "passwd", 0, 10)
    assert list_files(str(work), "", ["code/passwd"]).files == ()
    assert list_files(str(work), "", ["code"]).skipped == {"code": "is a symbolic link"}


def test_very_deep_directories_are_omitted(work: Path) -> None:
    deep = work.joinpath(*["d"] * (DEPTH_MAX + 1))
    deep.mkdir(parents=True)
    (deep / "file").touch()
    assert list_files(str(work), "", ["d"]).files == ()


def test_listing_the_files_of_a_forgotten_pod_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(FilesNotFound, match="no longer exist"):
        list_files(str(tmp_path / "none"), "", ["results"])


class FilePods:
    """Pods of a node that share one directory."""

    def __init__(self, work: Path) -> None:
        self.work = str(work)

    def list_files(self, pod_id: str, paths: list[str]) -> PodFiles:
        return list_files(self.work, "", paths)

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        return read_file(self.work, "", path, offset, limit)


class OneNode(RayFiles):
    """A Ray runtime whose pods are all on one node, or all on a lost node."""

    def __init__(self, agent: NodeAgent | None) -> None:
        self.agent = agent

    def _node_agent(self, pod_id: str) -> NodeAgent | None:
        return self.agent


def test_files_are_read_through_the_node_agent(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pods: Any = FilePods(work)
    server = Agent(("127.0.0.1", free_port()), pods, "secret", lambda: "")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with httpx.Client(trust_env=False) as client:
            node = OneNode(NodeAgent(client, f"http://127.0.0.1:{server.server_port}", "secret"))
            assert node.list_files("p-1", ["results", "none"]) == list_files(
                str(work), "", ["results", "none"]
            )
            assert node.read_file("p-1", "results/model.bin", 4, 3) == b"456"
            with pytest.raises(FilesNotFound, match="outside the pod's directory"):
                node.read_file("p-1", "../secret", 0, 10)
            monkeypatch.delitem(CONCURRENT, "files")
            with pytest.raises(RuntimeFailure, match="too old"):
                node.list_files("p-1", ["results"])
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(FilesNotFound, match="the pod's node no longer exists"):
        OneNode(None).list_files("p-1", ["results"])


def test_flood_of_links_and_directories_is_rejected(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FILES_MAX", 100)
    for number in range(60):
        (work / "results" / f"link{number}").symlink_to("/etc")
    assert len(list_files(str(work), "", ["results"]).skipped) == SKIPPED_MAX
    for number in range(60):
        (work / "results" / "deep" / f"{number}").mkdir()
    with pytest.raises(FilesNotFound, match="more than 100 files and directories"):
        list_files(str(work), "", ["results"])


def test_listing_with_excessively_long_paths_is_rejected(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PATH_BYTES_MAX", 3 * 2**20)
    deep = work.joinpath(*["d" * 255] * 10)
    deep.mkdir(parents=True)
    for number in range(1200):
        (deep / f"{number:0255}").touch()
    with pytest.raises(FilesNotFound, match="exceed 3 MiB in total"):
        list_files(str(work), "", ["d" * 255])
