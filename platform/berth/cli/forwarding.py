"""Forward connections to ports of a pod. Each connection is a channel of its own."""

import asyncio
from contextlib import suppress
from typing import Protocol

from berth.client.aio.channels import AsyncChannel
from berth.client.channels import CHUNK, CREDIT, END, ERRORS, OUTPUT, STATUS
from berth.client.config import Settings
from berth.client.errors import ClientError

_OUTPUT_END, _ERRORS_END = bytes((OUTPUT,)), bytes((ERRORS,))  # errors end when the port is connected


class Reader(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


class PodPort:
    """Port of a pod, by its number or its name."""

    def __init__(self, settings: Settings, workload_id: str, port: int | str, pod: str | None) -> None:
        self._settings, self._workload_id, self._port, self._pod = settings, workload_id, port, pod

    async def check(self) -> str:
        """Connect once. Return why the port is not available, or "". Raises ClientError if refused."""
        errors = b""
        async with self._open() as channel:
            while True:
                kind, payload = await channel.receive()
                if kind == ERRORS:
                    errors += payload
                elif kind == STATUS:
                    return _describe(errors)
                elif kind == OUTPUT or (kind == END and payload == _ERRORS_END and not errors):
                    return ""

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """Connect the streams to the port until both directions have ended. Raises ClientError."""
        async with self._open() as channel:
            credit = asyncio.Event()
            sender = asyncio.create_task(_send(channel, reader, credit))
            try:
                await _receive(channel, writer, credit)
            finally:
                sender.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await sender

    def _open(self) -> AsyncChannel:
        return AsyncChannel(self._settings, self._workload_id, {"connect": self._port}, pod=self._pod)


def _describe(errors: bytes) -> str:
    return errors.decode("utf-8", "replace").strip()


async def _send(channel: AsyncChannel, reader: Reader, credit: asyncio.Event) -> None:
    while True:
        while channel.window <= 0:
            credit.clear()
            await credit.wait()
        data = await reader.read(min(CHUNK, channel.window))
        if not data:
            await channel.end_input()
            return
        await channel.send_input(data)


async def _receive(channel: AsyncChannel, writer: Writer, credit: asyncio.Event) -> None:
    errors, ended = b"", set[bytes]()
    while True:
        kind, payload = await channel.receive()
        if kind == OUTPUT:
            writer.write(payload)
            await writer.drain()
        elif kind == ERRORS:
            errors += payload
        elif kind == CREDIT:
            credit.set()
        elif kind == END:
            ended.add(payload)
            if ended == {_OUTPUT_END, _ERRORS_END} and not errors:
                writer.write_eof()
        elif kind == STATUS:
            if channel.exit_code:
                raise ClientError(_describe(errors) or "The connection was reset.")
            return
