"""Tests for channels on Kubernetes with fake connections to the cluster."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import Mock

import pytest
from websockets.asyncio.server import ServerConnection, serve

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.channels import commands as commands_module
from pools.kubernetes.channels.bridge import Bridge
from pools.kubernetes.channels.forwarding import KnownPorts
from pools.kubernetes.channels.loop import ChannelLoop
from pools.kubernetes.channels.session import PROTOCOL, start_session
from pools.runtimes.base import RuntimeFailure
from pools.runtimes.shim.channels.frames import (
    CHUNK,
    CREDIT,
    END,
    FROM_POD,
    INPUT,
    RESIZE,
    START,
    STATUS,
    WINDOW,
    FrameReader,
    encode_credit,
    encode_frame,
)
from tests.contracts.pods import poll_until

PATIENCE = 180.0


class FakeSession:
    """A fake connection to a process in a pod. `received` records its input and terminal sizes."""

    def __init__(self, ends_processes: bool) -> None:
        self._ends_processes = ends_processes
        self.messages: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self.received: list[object] = []
        self.status: dict[str, Any] | None = None
        self.is_closed = False

    async def read_output(self) -> AsyncIterator[tuple[int, bytes]]:
        while (message := await self.messages.get()) is not None:
            yield message

    async def send_input(self, data: bytes) -> None:
        self.received.append(data)
        if self._ends_processes:
            self.messages.put_nowait((1, b"done"))

    async def resize(self, rows: int, columns: int) -> None:
        self.received.append((rows, columns))

    async def close(self) -> None:
        self.is_closed = True
        self.messages.put_nowait(None)


class Pod:
    """A pod and the client of one channel, with the channel's sessions `guard`, `command` and `copier`."""

    def __init__(self) -> None:
        self.sessions: dict[str, FakeSession] = {}
        self.failing, self.is_ready, self.ends_processes = "", True, True
        self._client, self._server = socket.socketpair()
        self._client.setblocking(False)

    async def start_session(self, api: object, pod: str, command: object, **options: object) -> FakeSession:
        name = ("guard", "command", "copier")[len(self.sessions)]
        if name == self.failing:
            raise RuntimeFailure("the cluster is not responding")
        session = self.sessions[name] = FakeSession(name == "guard" and self.ends_processes)
        if name == "guard" and self.is_ready:
            session.messages.put_nowait((1, b"ready"))
        return session

    async def open(self, **request: object) -> None:
        self.bridge = Bridge(None, "p-1", KnownPorts())  # type: ignore[arg-type]
        self.served = asyncio.create_task(self.bridge.serve(self._server))
        await self.send(START, json.dumps({"command": ["cat"], **request}).encode())

    async def send(self, kind: int, payload: bytes = b"", times: int = 1) -> None:
        await asyncio.get_running_loop().sock_sendall(self._client, encode_frame(kind, payload) * times)

    async def wait_for(self, is_true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_true():
                await asyncio.sleep(0.01)

    async def has(self, name: str) -> FakeSession:
        await self.wait_for(lambda: name in self.sessions)
        return self.sessions[name]

    async def disconnect(self) -> None:
        self._client.close()
        await asyncio.wait_for(self.served, PATIENCE)

    async def frames(self) -> list[tuple[int, bytes]]:
        reader, frames = FrameReader(FROM_POD), []
        async with asyncio.timeout(PATIENCE):
            while data := await asyncio.get_running_loop().sock_recv(self._client, 65536):
                frames += reader.feed(data)
            self._client.close()
            await self.served
        return frames

    def received(self, count: int) -> bytes:
        """Return up to `count` bytes sent to the client, without consuming them."""
        try:
            return self._client.recv(count, socket.MSG_PEEK)
        except BlockingIOError:
            return b""

    @property
    def is_released(self) -> bool:
        return all(session.is_closed for session in self.sessions.values()) and self._server.fileno() == -1


@pytest.fixture
def pod(monkeypatch: pytest.MonkeyPatch) -> Pod:
    pod = Pod()
    monkeypatch.setattr(commands_module, "start_session", pod.start_session)
    return pod


async def test_small_and_empty_input_frames_are_joined(pod: Pod) -> None:
    await pod.open()
    copier = await pod.has("copier")
    await pod.send(INPUT, b"", times=20_000)
    await pod.send(INPUT, b"x", times=20_000)
    await pod.wait_for(lambda: sum(len(data) for data in copier.received) == 20_000)  # type: ignore[arg-type,misc]
    assert len(copier.received) < 2_000
    await pod.send(INPUT, b"x" * CHUNK, times=WINDOW // CHUNK)
    await asyncio.wait_for(pod.served, PATIENCE)
    assert pod.is_released, "input beyond the window ends the channel"


async def test_flow_control_credit_never_exceeds_the_input_sent(pod: Pod) -> None:
    await pod.open()
    copier = await pod.has("copier")
    copier.messages.put_nowait((1, b"x" * 1000))
    await pod.send(INPUT, b"12345")
    await pod.wait_for(lambda: copier.received)
    copier.messages.put_nowait((1, b"x" * 1000))
    copier.messages.put_nowait(None)
    credit = encode_credit(5)
    await pod.wait_for(lambda: pod.received(len(credit)) == credit)
    pod.sessions["command"].status = {"status": "Success"}
    pod.sessions["command"].messages.put_nowait(None)
    frames = await pod.frames()
    assert frames == [(CREDIT, (5).to_bytes(4, "big")), (STATUS, b'{"exit_code": 0}')]
    assert pod.is_released


@pytest.mark.parametrize("size", ["[]", "null", "5", "[" * 60_000, '{"rows": 0}', '{"rows": {}}', "{"])
async def test_invalid_terminal_size_ends_the_channel(pod: Pod, size: str) -> None:
    await pod.open(terminal={})
    await pod.has("command")
    await pod.send(RESIZE, size.encode())
    assert await pod.frames() == []
    assert pod.is_released
    assert pod.sessions["guard"].received == [b"end\n"]


async def test_terminal_gets_the_latest_size_and_the_end_of_input(pod: Pod) -> None:
    await pod.open(terminal={"rows": 24, "columns": 80})
    await pod.send(RESIZE, b'{"rows": 33, "columns": 99}')
    command = await pod.has("command")
    await pod.wait_for(lambda: (33, 99) in command.received)
    await pod.send(END)
    await pod.wait_for(lambda: b"\x04" in command.received)
    await pod.send(RESIZE, b'{"rows": 34, "columns": 99}')
    await pod.wait_for(lambda: (34, 99) in command.received)
    await pod.disconnect()
    assert pod.is_released


async def test_command_status_contains_the_error_if_input_cannot_be_copied(pod: Pod) -> None:
    pod.failing = "copier"
    await pod.open()
    [(kind, status)] = await pod.frames()
    assert kind == STATUS
    error = "The pod cannot be reached right now: the cluster is not responding."
    assert json.loads(status) == {"error": error, "status": 503}
    assert pod.is_released


async def test_exit_status_is_sent_even_if_processes_keep_running(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.ends_processes = False
    await pod.open()
    command = await pod.has("command")
    monkeypatch.setattr(commands_module, "GUARD_SECONDS", 0.01)
    command.status = {"details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
    command.messages.put_nowait(None)
    assert await pod.frames() == [(STATUS, b'{"exit_code": 3}')]
    assert pod.is_released


async def test_client_may_send_flow_control_credit_after_the_status(pod: Pod) -> None:
    await pod.open()
    command = await pod.has("command")
    command.status = {"status": "Success"}
    command.messages.put_nowait(None)
    status = encode_frame(STATUS, b'{"exit_code": 0}')
    await pod.wait_for(lambda: pod.received(len(status)) == status)
    await pod.send(CREDIT, (1).to_bytes(4, "big"))
    assert await pod.frames() == [(STATUS, b'{"exit_code": 0}')]
    assert pod.is_released


async def test_unexpected_channel_error_releases_all_connections(
    pod: Pod, caplog: pytest.LogCaptureFixture
) -> None:
    await pod.open()
    command = await pod.has("command")
    command.status = {"details": {"causes": [None]}}
    command.messages.put_nowait(None)
    assert await pod.frames() == []
    assert pod.is_released
    assert "a channel failed" in caplog.text


async def test_guard_connection_is_closed_if_the_client_disconnects(pod: Pod) -> None:
    pod.is_ready = False
    await pod.open()
    await pod.has("guard")
    await pod.disconnect()
    assert pod.is_released


async def test_missing_shell_in_the_image_is_named_as_the_reason(pod: Pod) -> None:
    pod.is_ready = False
    await pod.open()
    guard = await pod.has("guard")
    guard.messages.put_nowait(None)
    [(_, status)] = await pod.frames()
    assert json.loads(status)["error"].startswith("Commands cannot be run in this pod: its image lacks `sh`")
    assert json.loads(status)["status"] == 409
    assert pod.is_released


async def test_node_that_fails_to_start_the_guard_is_reported(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.is_ready = False
    monkeypatch.setattr(commands_module, "GUARD_SECONDS", 0.01)
    await pod.open()
    [(_, status)] = await pod.frames()
    assert "the node did not start the command" in json.loads(status)["error"]
    assert pod.is_released


def test_failed_channels_free_their_slots(pod: Pod) -> None:
    channels = ChannelLoop()
    for failing in ("guard", "copier", ""):
        pod.sessions.clear()
        pod.failing = failing
        with channels.open(Mock(), "p-1") as client:
            client.settimeout(PATIENCE)
            client.sendall(encode_frame(START, b'{"command": ["cat"]}'))
            if not failing:
                client.sendall(encode_frame(RESIZE, b"[]"))
            while client.recv(65536):
                pass
        poll_until(lambda: not channels._open)
        assert all(session.is_closed for session in pod.sessions.values())
    assert channels._loop is not None
    ending = asyncio.run_coroutine_threadsafe(channels._loop.shutdown_asyncgens(), channels._loop)
    ending.result(PATIENCE)
    channels._loop.call_soon_threadsafe(channels._loop.stop)


async def test_exec_connection_uses_keepalive_to_detect_an_unreachable_cluster() -> None:
    async def wait(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(wait, "127.0.0.1", 0, subprotocols=[PROTOCOL]) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        api = Api(Connection(server=f"http://127.0.0.1:{port}"))
        session = await start_session(api, "/p-1", ["cat"], has_input=True, has_output=True)
        connection = session._socket.transport.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        await session.close()
