"""Connect to pods' ports through `pods/portforward`, over a WebSocket to the API server.

Programs that listen only on the pod's own address cannot be reached.
"""

import asyncio
import socket
from contextlib import suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.session import open_socket
from pools.runtimes.base import ChannelRejected

DATA, ERRORS = 0, 1
PORT_BYTES = 2  # length of the port number that the cluster sends at the start of each stream
BLOCK = 64 * 1024
NOT_LISTENING = "connection refused"  # phrase in the node's error message if nothing is listening on the port


class NotListening(ChannelRejected):
    """Raised if no process listens on the port."""


class PortConnection:
    """Connection to a pod's port. The pod is slowed down while the caller does not read."""

    def __init__(self, connection: ClientConnection, port: int) -> None:
        self._connection, self._port = connection, port
        self._header = {DATA: PORT_BYTES, ERRORS: PORT_BYTES}

    async def read(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises NotListening or ChannelRejected."""
        with suppress(ConnectionClosed):
            async for message in self._connection:
                data = message if isinstance(message, bytes) else message.encode()
                stream, content = data[0] if data else DATA, data[1:]
                skipped = min(self._header.get(stream, 0), len(content))
                if skipped:
                    self._header[stream] -= skipped
                    content = content[skipped:]
                if content and stream == ERRORS:
                    raise self._to_rejection(content.decode(errors="replace"))
                if content:
                    return content
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes. Discard them if the connection has ended."""
        with suppress(ConnectionClosed):
            for begin in range(0, len(data), BLOCK):
                await self._connection.send(bytes((DATA,)) + data[begin : begin + BLOCK])

    async def close(self) -> None:
        await self._connection.close()

    async def relay(self, client: socket.socket) -> None:
        """Copy data in both directions until either side ends. Raises NotListening or ChannelRejected."""
        try:
            client.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=client)
            tasks = [
                asyncio.create_task(self._send_all(reader)),
                asyncio.create_task(self._receive_all(writer)),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                writer.close()
            for task in done:
                with suppress(OSError):  # the client has disconnected
                    task.result()
        finally:
            await self.close()

    async def _send_all(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(BLOCK):
            await self.write(data)

    async def _receive_all(self, writer: asyncio.StreamWriter) -> None:
        while data := await self.read():
            writer.write(data)
            await writer.drain()

    def _to_rejection(self, message: str) -> ChannelRejected:
        if NOT_LISTENING in message.casefold():
            return NotListening(f"Nothing is listening on port {self._port} in the pod.")
        return ChannelRejected(f"the cluster does not connect to port {self._port}: {message.strip()}")


async def connect_port(api: Api, pod: str, port: int) -> PortConnection:
    """Connect to a pod's port.

    `pod` is the pod's API path. If no process accepts the connection, the first `read` raises NotListening.
    Raises ChannelRejected or RuntimeFailure.
    """
    return PortConnection(await open_socket(api, f"{pod}/portforward?ports={port}", "pods/portforward"), port)
