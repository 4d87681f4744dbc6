"""Tests for copying files to and from Kubernetes pods. Exec calls run as real processes on this machine."""

import asyncio
import json
import os
import select
import signal
import socket
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from berth.client.errors import Conflict, CopyFailed
from pools.kubernetes.channels import programs
from pools.kubernetes.channels.loop import ChannelLoop
from pools.runtimes.shim.channels.frames import (
    CHUNK,
    FROM_POD,
    INPUT,
    OUTPUT,
    START,
    STATUS,
    WINDOW,
    FrameReader,
    encode_credit,
    encode_frame,
)
from tests.channels.conftest import Site
from tests.contracts.pods import poll_until
from tests.contracts.test_runtime import exchange

PATIENCE = 180.0
MISSING = (
    'Internal error occurred: OCI runtime exec failed: exec failed: "python3": executable file not found in '
    "$PATH: unknown"
)
OLD = "import sys; sys.version_info = (3, 8, 10); exec(sys.argv.pop(1))"


class ExecCall:
    """An exec call that runs its command as a process on this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.status: dict[str, Any] | None = None

    async def read_output(self) -> AsyncIterator[tuple[int, bytes]]:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        while data := await self._process.stdout.read(65536):
            yield 1, data
        if data := await self._process.stderr.read():
            yield 2, data
        code = await self._process.wait()
        causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
        self.status = {"status": "Success"} if code == 0 else {"status": "Failure", "details": causes}

    async def send_input(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def close(self) -> None:
        """End the input and leave output unread, as a container runtime does when the connection ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        while self._process.returncode is None:  # `wait` would not return until all output has been read
            await asyncio.sleep(0.01)
        self._process._transport.close()  # type: ignore[attr-defined]


class Container:
    """A container with a working directory and Python.

    `options` are passed to Python before Berth's arguments.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.options: list[str] = []
        self.has_python = True
        self.calls: list[ExecCall] = []
        self.loop = ChannelLoop()

    async def start_session(
        self, api: object, pod: object, command: Sequence[str], **options: object
    ) -> ExecCall:
        assert command[0] == "python3"
        arguments = list(command[1:])
        place = arguments.index("-c") + 1
        arguments[place:place] = self.options
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=self.directory,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        call = ExecCall(process)
        self.calls.append(call)
        return call

    def open(self, pod_id: str) -> socket.socket:
        channel = self.loop.open(None, pod_id)  # type: ignore[arg-type]
        channel.settimeout(PATIENCE)
        return channel


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    (tmp_path / "container").mkdir()
    container = Container(tmp_path / "container")
    monkeypatch.setattr(programs, "start_session", container.start_session)
    yield container
    poll_until(lambda: not container.loop._open)
    assert all(call._process.returncode is not None for call in container.calls)
    assert container.loop._loop is not None
    container.loop._loop.call_soon_threadsafe(container.loop._loop.stop)


@pytest.fixture
def berth(site: Site, container: Container, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(site.runtime, "open_channel", container.open)
    return site


@pytest.mark.heavy
def test_directories_are_copied_both_ways_without_links_that_point_outside(
    berth: Site, container: Container, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "large").write_bytes(os.urandom(3 * 2**20 + 5))
    (tree / "sub" / "link").symlink_to("../large")
    (tree / "sub" / "etc").symlink_to("/etc")
    os.utime(tree / "large", (1_000_000_000, 1_000_000_000))
    # Python would import this module if it used its variables or the working directory.
    (container.directory / "pools.py").write_text("raise SystemExit(9)")
    with berth.client(berth.cast.dave) as client:
        sent = client.workloads.copy_to(berth.workload_id, str(tree), "data")
        assert (sent.files, len(sent.skipped)) == (1, 1)
        inside = container.directory / "data"
        assert (inside / "sub" / "link").read_bytes() == (tree / "large").read_bytes()
        assert (inside / "large").stat().st_mtime == 1_000_000_000
        assert not (inside / "sub" / "etc").is_symlink()

        (inside / "passwd").symlink_to("/etc/passwd")
        os.mkfifo(inside / "pipe")
        received = client.workloads.copy_from(berth.workload_id, "data", str(tmp_path / "back"))
        assert (received.files, sorted(text.split()[0] for text in received.skipped)) == (
            1, ["data/passwd", "data/pipe"],
        )  # fmt: skip
        assert (tmp_path / "back" / "large").read_bytes() == (tree / "large").read_bytes()
        with pytest.raises(CopyFailed, match="missing: No such file or directory"):
            client.workloads.copy_from(berth.workload_id, "missing", str(tmp_path / "x"))
        with pytest.raises(CopyFailed, match="no/such: No such directory"):
            client.workloads.copy_to(berth.workload_id, str(tree / "large"), "no/such/file")
    rows = berth.audit("_copy")
    assert [row[1:] for row in rows[:1]] == [
        ("open_copy", {"pod": "worker-0", "run": 1, "direction": "to pod"})
    ]


def test_interrupted_copy_leaves_the_previous_file_unchanged(container: Container) -> None:
    target = container.directory / "model"
    target.write_text("previous")
    channel = container.open("p-1")
    channel.sendall(encode_frame(START, b'{"copy_to": "model"}'))
    header = tarfile.TarInfo("model")
    header.size = 10 * CHUNK
    channel.sendall(encode_frame(INPUT, header.tobuf() + bytes(CHUNK)))
    poll_until(lambda: [path for path in container.directory.iterdir() if path.name.startswith(".berth-")])
    channel.close()
    poll_until(lambda: [path.name for path in container.directory.iterdir()] == ["model"])
    assert target.read_text() == "previous"


def test_archive_with_a_path_outside_its_target_is_rejected(container: Container) -> None:
    archive = tarfile.TarInfo("data/../../outside").tobuf() + bytes(1024)
    frames = exchange(container.open("p-1"), {"copy_to": "."}, archive)
    assert json.loads(frames[STATUS]) == {"exit_code": 1}
    assert not (container.directory.parent / "outside").exists()


def test_large_output_does_not_exceed_the_clients_flow_control_window(container: Container) -> None:
    (container.directory / "large").write_bytes(os.urandom(2**20))
    channel = container.open("p-1")
    channel.sendall(encode_frame(START, b'{"copy_from": "large"}'))
    reader, received = FrameReader(FROM_POD), 0
    while received < WINDOW:
        received += sum(len(data) for kind, data in reader.feed(channel.recv(65536)) if kind == OUTPUT)
    assert received == WINDOW
    assert not _is_readable(channel)
    channel.sendall(encode_credit(1))
    assert [len(data) for _, data in reader.feed(channel.recv(65536))] == [1]
    channel.close()


def test_sftp_server_lists_the_files_of_the_container(container: Container) -> None:
    (container.directory / "model").touch()

    def packet(kind: int, *fields: bytes) -> bytes:
        content = bytes((kind,)) + b"".join(fields)
        return len(content).to_bytes(4, "big") + content

    number, path = (7).to_bytes(4, "big"), (1).to_bytes(4, "big") + b"."
    open_directory = packet(11, number, path)
    read_directory = packet(12, number, (1).to_bytes(4, "big") + b"1")  # the first handle
    requests = packet(1, (3).to_bytes(4, "big")) + open_directory + read_directory
    frames = exchange(container.open("p-1"), {"sftp": True}, requests)
    assert json.loads(frames[STATUS]) == {"exit_code": 0}
    assert b"model" in frames[OUTPUT]


def _is_readable(channel: socket.socket) -> bool:
    return bool(select.select([channel], [], [], 0)[0])


@pytest.mark.parametrize("request_", [{"copy_to": 5}, {"copy_from": "a\0b"}, {"sftp": True, "copy_to": "x"}])
def test_invalid_channel_request_is_rejected(container: Container, request_: dict[str, object]) -> None:
    frames = exchange(container.open("p-1"), request_, b"")
    status = json.loads(frames[STATUS])
    assert (status["status"], status["error"].startswith("The request is not valid")) == (422, True)


@pytest.mark.heavy
def test_image_with_an_old_or_missing_python_is_rejected_with_the_reason(
    berth: Site, container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container.options = [OLD]
    with berth.client(berth.cast.dave) as client:
        with pytest.raises(Conflict, match=r"has Python 3\.8\. Berth needs Python 3\.9 or newer"):
            client.workloads.copy_from(berth.workload_id, "data", str(tmp_path / "x"))

        async def reject(session: ExecCall) -> AsyncIterator[tuple[int, bytes]]:
            session.status = {"status": "Failure", "message": MISSING}
            for message in list[tuple[int, bytes]]():
                yield message

        monkeypatch.setattr(ExecCall, "read_output", reject)
        with pytest.raises(Conflict, match=r"Files cannot be copied .*: its image has no `python3`"):
            client.workloads.copy_from(berth.workload_id, "data", str(tmp_path / "x"))


def test_file_copy_stops_when_its_relay_exits(container: Container) -> None:
    channel = container.open("p-1")
    channel.sendall(encode_frame(START, b'{"copy_to": "model"}'))
    header = tarfile.TarInfo("model")
    header.size = 10 * CHUNK
    channel.sendall(encode_frame(INPUT, header.tobuf() + bytes(CHUNK)))
    poll_until(lambda: [path for path in container.directory.iterdir() if path.name.startswith(".berth-")])
    (call,) = container.calls
    relay = Path(f"/proc/{call._process.pid}/task/{call._process.pid}/children").read_text().split()
    os.kill(int(relay[0]), signal.SIGKILL)
    assert "Berth's program exited with" in _read_status(channel)["error"]


def _read_status(channel: socket.socket) -> dict[str, Any]:
    reader = FrameReader(FROM_POD)
    while True:
        for kind, data in reader.feed(channel.recv(65536)):
            if kind == STATUS:
                return dict(json.loads(data))


def test_file_copy_is_rejected_if_the_pods_python_cannot_run_the_copy_program(container: Container) -> None:
    infinite = b'{"exit_code": 1e400}'
    for script, reason in (
        ("print('hello' * 9)", "could not run Berth's program"),
        ("import sys; sys.exit('broken')", "cannot be copied to or from this pod: broken."),
        ("raise SystemExit(3)", "Berth's program exited with code 3."),
        (f"import os; os.write(1, {encode_frame(OUTPUT)!r})", "unexpected frame of kind 1"),
        (f"import os; os.write(1, {encode_credit(1)!r})", "unexpected frame of kind 6"),
        (f"import os; os.write(1, {encode_frame(STATUS, infinite)!r})", "could not run Berth's program"),
    ):
        container.options = [script]
        frames = exchange(container.open("p-1"), {"copy_from": "x"}, b"")
        status = json.loads(frames[STATUS])
        assert (status["status"], reason in status["error"]) == (409, True), status
