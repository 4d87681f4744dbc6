"""Tests for forwarding ports of Kubernetes pods. A fake API server connects to real ports."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.channels import forwarding
from pools.kubernetes.channels.forwarding import KnownPorts, find_port
from pools.kubernetes.channels.loop import ChannelLoop
from pools.kubernetes.channels.session import PROTOCOL
from pools.runtimes.shim.channels.frames import (
    END,
    ERRORS,
    FROM_POD,
    INPUT,
    OUTPUT,
    START,
    STATUS,
    FrameReader,
    encode_frame,
)
from tests.channels.conftest import Site
from tests.channels.test_port_forward import forward, receive_all
from tests.contracts.kubernetes.stage import POOL, fake_kubernetes_stage
from tests.contracts.pods import running

PATIENCE = 180.0


def _serve_port(cluster: ServerConnection) -> None:
    assert cluster.request is not None
    port = int(parse_qs(urlsplit(cluster.request.path).query)["ports"][0])
    for stream in (b"\0", b"\1"):
        cluster.send(stream + port.to_bytes(2, "little"))
    try:
        target = socket.create_connection(("127.0.0.1", port))
    except OSError:
        cluster.send(b"\1dial tcp4 127.0.0.1: connect: connection refused")
        return

    def receive() -> None:
        with suppress(OSError, ConnectionClosed):
            while data := target.recv(65536):
                cluster.send(b"\0" + data)
        cluster.close()

    thread = threading.Thread(target=receive)
    thread.start()
    with target:
        for message in cluster:
            assert isinstance(message, bytes)
            target.sendall(message[1:])
        target.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.fixture
def channels() -> Iterator[tuple[ChannelLoop, Api]]:
    loop = ChannelLoop()
    with serve(_serve_port, "127.0.0.1", 0, subprotocols=[PROTOCOL]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        api = Api(Connection(f"http://127.0.0.1:{server.socket.getsockname()[1]}", token="t"))
        yield loop, api
        api.close()
        server.shutdown()
        thread.join()
    if loop._loop is not None:
        loop._loop.call_soon_threadsafe(loop._loop.stop)


@pytest.fixture
def program() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


def connect(channels: tuple[ChannelLoop, Api], port: object) -> socket.socket:
    loop, api = channels
    channel = loop.open(api, "/pods/p-1")
    channel.settimeout(PATIENCE)
    channel.sendall(encode_frame(START, json.dumps({"connect": port}).encode()))
    return channel


def frames(channel: socket.socket) -> list[tuple[int, bytes]]:
    with channel:
        return FrameReader(FROM_POD).feed(receive_all(channel))


def receive(connection: socket.socket, count: int) -> bytes:
    connection.settimeout(PATIENCE)
    received = b""
    while len(received) < count:
        received += connection.recv(count - len(received)) or pytest.fail("the connection has ended")
    return received


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_channel_ends_when_the_program_has_closed_the_connection(
    channels: tuple[ChannelLoop, Api], program: socket.socket
) -> None:
    channel = connect(channels, port_of(program))
    channel.sendall(encode_frame(INPUT, b"hello"))
    inside, _ = program.accept()
    with inside:
        assert receive(inside, 5) == b"hello"
        inside.sendall(b"bye")
    received = [frame for frame in frames(channel) if frame[0] in (OUTPUT, END, STATUS)]
    assert sorted(received[:2]) == [(OUTPUT, b"bye"), (END, bytes((ERRORS,)))]
    assert received[2:] == [(END, bytes((OUTPUT,))), (STATUS, b'{"exit_code": 0}')]


def test_response_after_end_of_input_is_delivered(
    channels: tuple[ChannelLoop, Api], program: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = connect(channels, port_of(program))
    channel.sendall(encode_frame(INPUT, b"question") + encode_frame(END))
    inside, _ = program.accept()
    with inside:
        assert receive(inside, 8) == b"question"
        inside.sendall(b"answer")
    assert (OUTPUT, b"answer") in frames(channel)

    monkeypatch.setattr(forwarding, "HALF_CLOSED_SECONDS", 0.0)
    channel = connect(channels, port_of(program))
    inside, _ = program.accept()
    with inside:
        inside.settimeout(PATIENCE)
        channel.sendall(encode_frame(END))
        assert inside.recv(1) == b"", "the program is told that its client has gone"
    assert frames(channel)[-1] == (STATUS, b'{"exit_code": 0}')


def test_error_names_the_port_on_which_nothing_listens(channels: tuple[ChannelLoop, Api]) -> None:
    with socket.socket() as reserved:  # the port is bound, but nothing is listening
        reserved.bind(("127.0.0.1", 0))
        port = port_of(reserved)
        received = frames(connect(channels, port))
    message = f"Nothing is listening on port {port} in the pod.\n".encode()
    assert (ERRORS, message) in received
    assert received[-1] == (STATUS, b'{"exit_code": 1}')


@pytest.mark.parametrize(
    ("port", "problem"), [(0, "a port must be a name or a number"), (True, "a port must")]
)
def test_forwarding_to_an_invalid_port_is_rejected(
    channels: tuple[ChannelLoop, Api], port: object, problem: str
) -> None:
    [(kind, status)] = frames(connect(channels, port))
    assert kind == STATUS
    assert json.loads(status)["status"] == 422
    assert problem in json.loads(status)["error"]


async def test_port_name_resolves_to_the_number_in_the_pods_environment_variables(
    tmp_path: Path,
) -> None:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        stage.runtime.start(stage.order("p-1", "sleep", "inf", env={"BERTH_PORT_LAB": "8888"}))
        running(stage.runtime, "p-1")
        api, pod = stage.access[POOL].cluster.api, f"/api/v1/namespaces/{stage.namespace}/pods/p-1"
        assert await find_port(api, pod, "lab") == 8888
        with pytest.raises(ValueError, match="no port named 'web'; its named ports: lab"):
            await find_port(api, pod, "web")


def test_port_is_remembered_as_open_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = KnownPorts()
    ports.add("p-1", 80)
    assert (ports.is_known("p-1", 80), ports.is_known("p-2", 80)) == (True, False)
    ports.discard("p-1", 80)
    assert not ports.is_known("p-1", 80)
    monkeypatch.setattr(forwarding, "KNOWN_SECONDS", 0.0)
    ports.add("p-1", 80)
    assert not ports.is_known("p-1", 80)


@pytest.mark.heavy
def test_command_forwards_connections_to_the_cluster(
    site: Site, channels: tuple[ChannelLoop, Api], program: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, api = channels
    monkeypatch.setattr(site.runtime, "open_channel", lambda pod_id: loop.open(api, "/pods/p-1"))
    command, (port,) = forward(site, f"0:{port_of(program)}")
    program.accept()[0].close()  # the command tries the port when it starts
    data = os.urandom(2**20)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        threading.Thread(target=client.sendall, args=(data,)).start()
        inside, _ = program.accept()
        with inside:
            assert receive(inside, len(data)) == data
            threading.Thread(target=inside.sendall, args=(data,)).start()
            assert receive(client, len(data)) == data
        assert client.recv(1) == b""
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=PATIENCE)
    assert (command.returncode, errors) == (130, b"")
