"""Connect to commands and programs in pods."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType

from typing_extensions import Self
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from berth.client.channels import (
    CHUNK,
    CREDIT,
    END,
    ERRORS,
    INPUT,
    OUTPUT,
    SIGNAL,
    STATUS,
    WINDOW,
    CommandResult,
    Request,
    command_request,
    connection_options,
    connection_url,
    encode_credit,
    encode_size,
    encode_start,
    parse_status,
)
from berth.client.config import Settings
from berth.client.errors import Unreachable
from berth.core.wording.reasons import plain_reason


class AsyncChannel:
    """Connection to a command in a pod.

    Leaving the `with` block ends the command. `window` is the number of input bytes that the command can
    accept now. When the command has ended, `exit_code` or `signal` says how. If it could not be started,
    `failure` says why. One thread may send while another receives.
    """

    def __init__(
        self,
        settings: Settings,
        workload_id: str,
        request: Request,
        *,
        pod: str | None = None,
    ) -> None:
        self._settings, self._url = settings, connection_url(settings, workload_id, pod)
        self._start = encode_start(request)
        self._stack = AsyncExitStack()
        self._socket: ClientConnection
        self._processed = 0  # bytes of output that have not been acknowledged yet
        self._sent = self._credited = 0  # input bytes sent and allowed; only one thread changes each
        self.exit_code: int | None = None
        self.failure = self.signal = ""

    async def __aenter__(self) -> Self:
        try:
            opening = connect(self._url, **connection_options(self._settings))
            self._socket = await self._stack.enter_async_context(opening)
        except (OSError, InvalidHandshake) as error:
            raise Unreachable(f"cannot reach {self._settings.address}: {plain_reason(error)}") from None
        await self._send(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def window(self) -> int:
        return WINDOW + self._credited - self._sent

    async def send_input(self, data: bytes) -> None:
        """Send at most `window` bytes of input."""
        self._sent += len(data)
        for start in range(0, len(data), CHUNK):
            await self._send(bytes((INPUT,)) + data[start : start + CHUNK])

    async def end_input(self) -> None:
        await self._send(bytes((END,)))

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(encode_size(rows, columns))

    async def send_signal(self, name: str) -> None:
        """Send a signal such as TERM to the command's process group."""
        await self._send(bytes((SIGNAL,)) + name.encode())

    async def receive(self) -> tuple[int, bytes]:
        """Return the kind and content of the next frame.

        The kind is OUTPUT or ERRORS (with bytes), CREDIT if `window` has grown, or STATUS at the end. On a
        connection to a port, END means that no more frames of the kind in its content will follow. Each call
        acknowledges the previous output. Raises Rejected or Unreachable.
        """
        if self._processed:
            processed, self._processed = self._processed, 0
            await self._send(encode_credit(processed))
        try:
            message = await self._socket.recv()
        except ConnectionClosed:
            raise Unreachable("the connection to the pod was lost. Try again.") from None
        frame = message.encode() if isinstance(message, str) else bytes(message)
        kind, payload = frame[0], frame[1:]
        if kind == CREDIT:
            self._credited += int.from_bytes(payload, "big")
        elif kind == STATUS:
            status = parse_status(payload)
            self.exit_code, self.failure, self.signal = status.exit_code, status.failure, status.signal
        elif kind in (OUTPUT, ERRORS):
            self._processed = len(payload)
        return kind, payload

    async def _send(self, frame: bytes) -> None:
        try:
            await self._socket.send(frame)
        except ConnectionClosed:
            return  # `receive` raises the error with its reason


async def run_command(
    settings: Settings, workload_id: str, command: Sequence[str], pod: str | None, data: bytes
) -> CommandResult:
    """Run a command in a pod with `data` as input, and return the result."""
    parts: dict[int, list[bytes]] = {OUTPUT: [], ERRORS: []}
    async with AsyncChannel(settings, workload_id, command_request(command), pod=pod) as channel:
        sent, has_ended = 0, False
        while True:
            if sent < len(data) and channel.window > 0:
                chunk = data[sent : sent + channel.window]
                await channel.send_input(chunk)
                sent += len(chunk)
            if sent == len(data) and not has_ended:
                await channel.end_input()
                has_ended = True
            kind, payload = await channel.receive()
            if kind == STATUS:
                errors = b"".join(parts[ERRORS]) + channel.failure.encode()
                return CommandResult(channel.exit_code or 0, b"".join(parts[OUTPUT]), errors)
            if kind in parts:
                parts[kind].append(payload)
