"""Forward connections to ports of a pod. Each connection has its own channel."""

import asyncio
from contextlib import suppress
from typing import Protocol

from berth.client.aio.workloads.channels import AsyncChannel
from berth.client.channels import CHUNK, CREDIT, END, ERRORS, OUTPUT, STATUS
from berth.client.config import Settings
from berth.client.errors import ClientError

# The error stream ends once the port is connected.
_OUTPUT_END, _ERRORS_END = bytes((OUTPUT,)), bytes((ERRORS,))


class NotListening(ClientError):
    """Raised if no process in the pod accepts the connection."""


class Reader(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


class PodPort:
    """Port of a pod, identified by number or name."""

    def __init__(self, settings: Settings, workload_id: str, port: int | str, pod: str | None) -> None:
        self._settings, self._workload_id, self._port, self._pod = settings, workload_id, port, pod

    async def check(self) -> str:
        """Return the reason why the port is unavailable, or "" if it is available.

        Raises ClientError if the server rejects the request.
        """
        try:
            connection = await self.connect()
        except NotListening as error:
            return str(error)
        await connection.close()
        return ""

    async def connect(self) -> "PortConnection":
        """Return an open connection, which the caller must close.

        Raises NotListening or another ClientError.
        """
        request = {"connect": self._port}
        channel = AsyncChannel(self._settings, self._workload_id, request, pod=self._pod)
        connection = PortConnection(await channel.__aenter__())
        try:
            await connection.wait_connected()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Copy data between the streams and the port until both directions have ended. Raises ClientError."""
        connection = await self.connect()
        try:
            await connection.serve(reader, writer)
        finally:
            await connection.close()


class PortConnection:
    """Connection to a pod's port over one channel."""

    def __init__(self, channel: AsyncChannel) -> None:
        self._channel = channel
        self._first = b""  # output that arrived together with the connection message
        self._errors, self._ended = b"", set[bytes]()
        self._has_credit = asyncio.Event()

    async def wait_connected(self) -> None:
        """Wait until the port has accepted the connection. Raises ClientError."""
        while True:
            kind, payload = await self._channel.receive()
            if kind == ERRORS:
                self._errors += payload
            elif kind == STATUS:
                raise NotListening(self._describe() or "The connection was reset.")
            elif kind == OUTPUT:
                self._first = payload
                return
            elif kind == END:
                self._ended.add(payload)
                if payload == _ERRORS_END and not self._errors:
                    return

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Copy data between the streams and the port until both directions have ended. Raises ClientError."""
        sender = asyncio.create_task(self._send(reader))
        try:
            await self._receive(writer)
        finally:
            sender.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await sender

    async def close(self) -> None:
        await self._channel.__aexit__(None, None, None)

    def _describe(self) -> str:
        return self._errors.decode("utf-8", "replace").strip()

    async def _send(self, reader: Reader) -> None:
        while True:
            while self._channel.window <= 0:
                self._has_credit.clear()
                await self._has_credit.wait()
            data = await reader.read(min(CHUNK, self._channel.window))
            if not data:
                await self._channel.end_input()
                return
            await self._channel.send_input(data)

    async def _receive(self, writer: Writer) -> None:
        if self._first:
            writer.write(self._first)
            await writer.drain()
        while True:
            kind, payload = await self._channel.receive()
            if kind == OUTPUT:
                writer.write(payload)
                await writer.drain()
            elif kind == ERRORS:
                self._errors += payload
            elif kind == CREDIT:
                self._has_credit.set()
            elif kind == END:
                self._ended.add(payload)
                if self._ended == {_OUTPUT_END, _ERRORS_END} and not self._errors:
                    writer.write_eof()
            elif kind == STATUS:
                if self._channel.exit_code:
                    raise ClientError(self._describe() or "The connection was reset.")
                return
