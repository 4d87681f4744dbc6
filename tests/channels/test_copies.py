"""Tests for copying files to and from pods with the Python client, `berth cp` and a real server."""

import asyncio
import os
import signal
import socket
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from berth.client import AsyncClient
from berth.client.errors import CopyFailed, Forbidden, Invalid, Unreachable
from pools.runtimes.shim.channels.command import HANG_UP_SECONDS
from pools.runtimes.shim.channels.frames import CHUNK, INPUT, START, encode_frame
from pools.runtimes.shim.processes import process_ids
from tests.channels.conftest import Screen, Site
from tests.contracts.pods import poll_until
from tests.support.open_files import open_files

PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


def run(site: Site, *arguments: str, cwd: Path) -> tuple[int, str]:
    program = site.start(*arguments, **PIPES, cwd=cwd)
    output, errors = program.communicate(timeout=120)
    assert output == b""
    return program.returncode, errors.decode()


@pytest.mark.heavy
def test_files_and_directories_are_copied_both_ways(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    (local / "configs" / "sub").mkdir(parents=True)
    (local / "data.csv").write_bytes(os.urandom(3 * 2**20))
    (local / "configs" / "sub" / "a.yaml").write_text("a: 1\n")
    (local / "configs" / "link").symlink_to("sub/a.yaml")
    (local / "configs" / "etc").symlink_to("/etc")
    os.utime(local / "data.csv", (1_000_000_000, 1_000_000_000))
    with site.client(site.cast.dave) as client:
        client.workloads.exec(site.workload_id, ["mkdir", "data", "no-access"])
        assert run(site, "cp", "data.csv", "train:data/", cwd=local) == (0, "")
        code, errors = run(site, "cp", "configs", "vision/train:renamed", "--pod", "worker-0", cwd=local)
        assert (code, errors.count("\n")) == (1, 1)
        assert "left out: configs/etc is a link to /etc, outside" in errors
        script = "stat -c '%u %Y' data/data.csv; id -u; cat renamed/link; ls -A renamed data"
        seen = client.workloads.exec(site.workload_id, ["sh", "-c", script]).output.decode().split()
        assert seen[1:] == [
            "1000000000",
            seen[0],
            *["a:", "1", "data:", "data.csv", "renamed:", "link", "sub"],
        ]
        assert run(site, "cp", "train:data/data.csv", ".", cwd=tmp_path) == (0, "")
        assert (tmp_path / "data.csv").read_bytes() == (local / "data.csv").read_bytes()
        assert (tmp_path / "data.csv").stat().st_mtime == 1_000_000_000
        client.workloads.exec(site.workload_id, ["mkfifo", "renamed/pipe"])
        assert run(site, "cp", "train:renamed", "back", cwd=tmp_path) == (
            1, "berth: left out: renamed/pipe is neither a file nor a directory.\n",
        )  # fmt: skip
        assert (tmp_path / "back" / "sub" / "a.yaml").read_text() == "a: 1\n"

        reports: list[tuple[int, int | None]] = []
        copied = client.workloads.copy_from(
            site.workload_id, "data/data.csv", tmp_path / "x", progress=lambda *report: reports.append(report)
        )
        assert (copied.files, copied.size, copied.skipped) == (1, 3 * 2**20, [])
        assert reports[-1] == (3 * 2**20, 3 * 2**20)

        monkeypatch.chdir(local)
        for arguments, expected, message in (
            (("nothing", "train:"), 1, "berth: nothing: No such file or directory"),
            (("data.csv", "train:missing/"), 1, "berth: missing/: No such directory"),
            (("data.csv", "train:missing/x"), 1, "/missing: No such directory"),
            (("data.csv", "train:/etc"), 1, "berth: /etc/data.csv: "),
            (("train:nothing", "."), 1, "berth: nothing: No such file or directory"),
            (("train:data", "missing/x"), 1, "berth: missing: No such directory"),
            (("train:data", "."), 0, ""),
            (("data.csv", "other"), 2, "Neither path is in a pod"),
            (("a:b", "c:d"), 2, "Both paths are in a pod"),
            (("data.csv", "trian:x"), 4, "Workload trian does not exist"),
            (("data.csv", "train:x", "--pod", "worker-9"), 4, "There is no pod"),
        ):
            done = site.run("cp", *arguments)
            assert (done.returncode, message in done.stderr) == (expected, True), (arguments, done)
            assert (done.stdout, done.stderr.count("\n") <= 1) == ("", True), (arguments, done)
    audited = [row[1:] for row in site.audit("_copy")]
    assert audited[0] == ("open_copy", {"pod": "worker-0", "run": 1, "direction": "to pod"})
    assert "data.csv" not in str(audited)

    with site.client(site.cast.erin) as client, pytest.raises(Forbidden, match="You need the"):
        client.workloads.copy_to(site.workload_id, local / "data.csv")


@pytest.mark.heavy
def test_interrupted_copy_leaves_no_partial_file(site: Site, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(8 * 2**20))

    class Stopped(Exception):
        pass

    def stop(size: int, total: int | None) -> None:
        if size > 2**20:
            raise Stopped

    with site.client(site.cast.dave) as client:
        client.workloads.exec(site.workload_id, ["sh", "-c", "echo previous > large"])
        with pytest.raises(Stopped):
            client.workloads.copy_to(site.workload_id, tmp_path / "large", progress=stop)
        command = ["sh", "-c", "cat large; ls -A"]
        poll_until(
            lambda: client.workloads.exec(site.workload_id, command).output,
            lambda seen: seen == b"previous\nlarge\n",
        )
        client.workloads.exec(site.workload_id, ["sh", "-c", "head -c 8000000 /dev/urandom > large"])
        with pytest.raises(Stopped):
            client.workloads.copy_from(site.workload_id, "large", tmp_path / "target", progress=stop)
        assert [path.name for path in tmp_path.glob("*") if path.is_file()] == ["large"]

        def end_pod(size: int, total: int | None) -> None:
            site.runtime.stop(str(site.pod.pk), 0)

        # The message depends on what is noticed first: the end of the pod or that of one of its processes.
        ends = r"pod has ended|exited with code|was killed"
        with pytest.raises((Unreachable, CopyFailed), match=ends):
            client.workloads.copy_to(site.workload_id, tmp_path / "large", progress=end_pod)


@pytest.mark.heavy
def test_incomplete_file_is_deleted_even_if_the_receiver_was_paused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(8 * 2**20))
    receivers: list[int] = []

    class Stopped(Exception):
        pass

    def pause_and_stop(size: int, total: int | None) -> None:
        if size > 2**20 and not receivers:
            receivers.extend(pid for pid in process_ids() if _writes_incomplete_file(pid, str(site.pod.pk)))
            for pid in receivers:
                os.kill(pid, signal.SIGSTOP)
            raise Stopped

    with site.client(site.cast.dave) as client:
        with pytest.raises(Stopped):
            client.workloads.copy_to(site.workload_id, tmp_path / "large", progress=pause_and_stop)
        assert receivers
        time.sleep(HANG_UP_SECONDS + 1)  # commands would be killed by now
        for pid in receivers:
            os.kill(pid, signal.SIGCONT)
        command = ["ls", "-A"]
        poll_until(lambda: client.workloads.exec(site.workload_id, command).output, lambda seen: seen == b"")


@pytest.mark.heavy
def test_incomplete_file_is_deleted_even_if_the_client_stops_receiving(site: Site) -> None:
    # Sending fails although the client's connection is still open.
    pod_id = str(site.pod.pk)
    work = site.runtime.root / "pods" / pod_id / "work"
    header = tarfile.TarInfo("model")
    header.size = 10 * CHUNK
    with site.runtime.open_channel(pod_id) as channel:
        channel.sendall(encode_frame(START, b'{"copy_to": "model"}'))
        channel.sendall(encode_frame(INPUT, header.tobuf() + bytes(CHUNK)))
        poll_until(lambda: [path for path in work.iterdir() if path.name.startswith(".berth-")])
        (receiver,) = poll_until(
            lambda: [pid for pid in process_ids() if _writes_incomplete_file(pid, pod_id)]
        )
        os.kill(receiver, signal.SIGSTOP)
        channel.shutdown(socket.SHUT_RD)
        channel.sendall(encode_frame(INPUT, bytes(CHUNK)))
        time.sleep(1)  # the file would remain if its process were killed by now
        os.kill(receiver, signal.SIGCONT)
        poll_until(lambda: not list(work.iterdir()))


def _writes_incomplete_file(pid: int, pod_id: str) -> bool:
    try:
        return any(".berth-" in file and pod_id in file for file in open_files(pid))
    except OSError:  # the process has ended
        return False


@pytest.mark.heavy
def test_invalid_requests_and_paths_are_rejected_with_the_reason(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = site.settings(site.cast.dave)
    with site.client(site.cast.dave) as client:
        with pytest.raises(Invalid, match="copy_to must be a path"):
            client.workloads.copy_to(site.workload_id, tmp_path / "file", "a\0b")
        from berth.client.sync.workloads.channels import Channel

        for request in ({}, {"command": ["true"], "copy_to": ""}, ["command"]):
            rejected = pytest.raises(Invalid, match=r"exactly one of the keys|is not a JSON object")
            channel = Channel(settings, site.workload_id, request)  # type: ignore[arg-type]
            with channel, rejected:
                channel.receive()

    async def copy() -> int:
        async with AsyncClient(settings=settings) as client:
            await client.workloads.copy_to(site.workload_id, tmp_path / "file")
            return (await client.workloads.copy_from(site.workload_id, "file", tmp_path / "back")).files

    assert asyncio.run(copy()) == 1


@pytest.mark.heavy
def test_file_copy_on_a_terminal_shows_its_progress(site: Site, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2**20))
    screen = Screen(site, "cp", str(tmp_path / "large"), "train:")
    screen.wait_for("copying")
    assert screen.program.wait(180) == 0
    screen.close()
