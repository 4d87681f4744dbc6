"""Tests for connections to pod ports, with a fake API server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.api_server.credentials import Connection
from pools.kubernetes.channels.loop import ChannelLoop
from pools.kubernetes.channels.ports import NotListening, connect_port
from pools.kubernetes.channels.session import PROTOCOL
from pools.runtimes.base import ChannelRejected

PATIENCE = 180.0
PORT = (8888).to_bytes(2, "little")
BEGIN = (b"\0" + PORT, b"\1" + PORT)
Node = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def cluster(node: Node) -> AsyncIterator[Api]:
    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        assert connection.request.path == "/pods/p-1/portforward?ports=8888"
        for message in BEGIN:
            await connection.send(message)
        await node(connection)

    async with serve(handle, "127.0.0.1", 0, subprotocols=[PROTOCOL]) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        api = Api(Connection(f"http://127.0.0.1:{port}", token="t"))
        yield api
        api.close()


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        assert isinstance(message, bytes)
        await connection.send(message)


async def test_connection_carries_bytes_in_both_directions() -> None:
    async with cluster(echo) as api, asyncio.timeout(PATIENCE):
        port = await connect_port(api, "/pods/p-1", 8888)
        data = bytes(range(256)) * 1024
        await port.write(data)
        received = b""
        while len(received) < len(data):
            received += await port.read()
        assert received == data
        await port.close()
        assert await port.read() == b""


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ("IPv4: dial tcp4 127.0.0.1:8888: connect: connection refused", NotListening, "Nothing is listening"),
        ("socat[7] E connect(5, ...): Connection refused", NotListening, "on port 8888 in the pod"),
        ("unable to do port forwarding: socat not found", ChannelRejected, "port 8888: unable to do port"),
    ],
)
async def test_refused_connection_error_contains_the_reason(
    message: str, kind: type[Exception], text: str
) -> None:
    async def reject(connection: ServerConnection) -> None:
        await connection.send(b"\1" + message.encode())

    async with cluster(reject) as api, asyncio.timeout(PATIENCE):
        port = await connect_port(api, "/pods/p-1", 8888)
        with pytest.raises(kind, match=text):
            await port.read()
        await port.close()


async def test_socket_is_closed_when_the_pod_or_the_client_ends_the_connection() -> None:
    ended = asyncio.Event()

    async def answer_once(connection: ServerConnection) -> None:
        message = await connection.recv()
        assert isinstance(message, bytes)
        await connection.send(message)
        if message == b"\0stay":
            await connection.wait_closed()
            ended.set()

    channels, loop = ChannelLoop(), asyncio.get_running_loop()
    async with cluster(answer_once) as api, asyncio.timeout(PATIENCE):
        client = await asyncio.to_thread(channels.open_port, api, "/pods/p-1", 8888)
        client.setblocking(False)
        await loop.sock_sendall(client, b"hello")
        assert await loop.sock_recv(client, 100) == b"hello"
        assert await loop.sock_recv(client, 100) == b""
        client.close()

        client = await asyncio.to_thread(channels.open_port, api, "/pods/p-1", 8888)
        client.setblocking(False)
        await loop.sock_sendall(client, b"stay")
        assert await loop.sock_recv(client, 100) == b"stay"
        client.close()
        await ended.wait()
    await _stop(channels)


async def _stop(channels: ChannelLoop) -> None:
    async with asyncio.timeout(PATIENCE):
        while channels._tasks:
            await asyncio.sleep(0.01)
    assert channels._loop is not None
    channels._loop.call_soon_threadsafe(channels._loop.stop)


async def test_socket_is_closed_if_the_call_is_rejected() -> None:
    channels = ChannelLoop()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    api = Api(Connection(f"http://127.0.0.1:{port}", token="t"))
    with pytest.raises(Exception, match=r"^the connection to .* failed: "):
        await asyncio.to_thread(channels.open_port, api, "/pods/p-1", 8888)
    api.close()
    await _stop(channels)
