"""Connect the frames of a channel with exec calls in a pod of a cluster."""

import asyncio
import json
import logging
import secrets
import socket
from typing import Any, TypeVar

from pools.kubernetes.api import Api
from pools.kubernetes.channels import scripts
from pools.kubernetes.channels.session import Session, read_status, start_session
from pools.runtimes.base import ChannelRefused, RuntimeFailure
from pools.runtimes.shim.channels.frames import (
    CHUNK,
    CREDIT,
    END,
    FROM_CLIENT,
    INPUT,
    OUTPUT,
    RESIZE,
    START,
    STATUS,
    WINDOW,
    BrokenFrames,
    FrameReader,
    decode_credit,
    encode_credit,
    encode_frame,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
START_SECONDS = 30.0  # time for the client to send its request
GUARD_SECONDS = 15.0  # time for the guard to start, or to kill the processes of the channel
SIZE_MAX = 10_000  # rows or columns
CONFLICT, INVALID = 409, 422  # HTTP statuses
ONLY_COMMANDS = (
    "Pods on Kubernetes only run commands. To copy a file, use `berth exec -i NAME -- tee FILE` or "
    "`berth exec NAME -- cat FILE`."
)
END_OF_INPUT = b"\x04"  # what a terminal sends at the end of the input
NO_SHELL = "its image has no `sh` or no `mkfifo`, which Berth needs to end commands with their connection"


class Bridge:
    """One channel. Its buffers are bounded by the window of the protocol."""

    def __init__(self, api: Api, pod: str) -> None:
        self._api, self._pod, self._mark = api, pod, secrets.token_hex(8)
        self._started = asyncio.Event()
        self._request: dict[str, Any] = {}
        self._size: tuple[int, int] | None = None  # latest size that the client has sent for its terminal
        self._input = bytearray()
        self._input_ended = False
        self._unacknowledged = 0  # bytes of input that were sent, and that the pod has not accepted
        self._has_progress = asyncio.Event()
        self._has_event = asyncio.Event()  # the client has sent input, its end, or a terminal size
        self._window = WINDOW  # bytes of output that the client still accepts
        self._has_window = asyncio.Event()
        self._has_window.set()
        self._guard_output: Any = None

    async def open(self) -> None:
        """Start the guard. Raises ChannelRefused or RuntimeFailure."""
        self._guard = await start_session(
            self._api, self._pod, scripts.guard(self._mark), has_input=True, has_output=True
        )
        self._guard_output = self._guard.output()
        try:
            if not await self._wait_for_guard(scripts.READY):
                raise ChannelRefused(NO_SHELL)
        except BaseException as error:
            await self._guard.close()
            if isinstance(error, TimeoutError):
                raise RuntimeFailure("the node does not start the command") from None
            raise

    async def serve(self, connection: socket.socket) -> None:
        """Serve the channel until the command or the connection ends, and close the connection."""
        try:
            connection.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=connection)
            try:
                await self._serve(reader, writer)
            finally:
                writer.close()
        finally:
            await self._guard.close()  # the guard then kills the processes that are left

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver = asyncio.create_task(self._receive(reader))
        command = asyncio.create_task(self._run(writer))
        try:
            await asyncio.wait({receiver, command}, return_when=asyncio.FIRST_COMPLETED)
            status = await cancel(command)
            if await self._end_processes() and status is not None:
                writer.write(encode_frame(STATUS, json.dumps(status).encode()))
                await writer.drain()
        except OSError:  # the client has gone
            pass
        finally:
            command.cancel()
            await cancel(receiver)

    async def _run(self, writer: asyncio.StreamWriter) -> dict[str, object] | None:
        """Run the command, and return its status, or None if the connection to the cluster was lost."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._started.wait()
            if "ssh" in self._request:
                self._request = {"command": scripts.HOLD}
            if "command" not in self._request:
                return {"error": ONLY_COMMANDS, "status": CONFLICT}
            command, terminal = _parse_request(self._request)
            if terminal is not None and self._size is None:
                self._size = terminal_size(terminal)
        except TimeoutError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"The request is not valid: {error}.", "status": INVALID}
        try:
            return await self._run_command(writer, command, terminal)
        except (ChannelRefused, RuntimeFailure) as error:
            return {"error": f"The command could not be started: {error}."}

    async def _run_command(
        self, writer: asyncio.StreamWriter, command: list[str], terminal: dict[str, object] | None
    ) -> dict[str, object] | None:
        has_terminal = terminal is not None
        if terminal is None:
            script = scripts.in_pipes(self._mark, command)
        else:
            assert self._size is not None
            terminal_type = str(terminal.get("type") or "xterm-256color")
            script = scripts.on_terminal(self._mark, command, terminal_type, *self._size)
        session = await start_session(
            self._api, self._pod, script,
            has_input=has_terminal, has_output=True, has_terminal=has_terminal,
        )  # fmt: skip
        output = asyncio.create_task(self._send_output(writer, session))
        drive = self._drive_terminal(writer, session) if has_terminal else self._copy_input(writer)
        sender = asyncio.create_task(drive)
        try:
            await asyncio.wait({output, sender}, return_when=asyncio.FIRST_COMPLETED)
            if not output.done():
                sender.result()  # raises if the command cannot receive its input
            await output
        finally:
            await cancel(sender)
            await cancel(output)
            await session.close()
        return read_status(session.status)

    async def _send_output(self, writer: asyncio.StreamWriter, session: Session) -> None:
        async for kind, data in session.output():
            await self._forward(writer, kind, data)

    async def _forward(self, writer: asyncio.StreamWriter, kind: int, data: bytes) -> None:
        """Send output within the window of the client."""
        while data:
            await self._has_window.wait()
            part = data[: min(CHUNK, self._window)]
            data = data[len(part) :]
            self._window -= len(part)
            if not self._window:
                self._has_window.clear()
            writer.write(encode_frame(kind, part))
            await writer.drain()

    async def _drive_terminal(self, writer: asyncio.StreamWriter, terminal: Session) -> None:
        """Send the size of the terminal and its input until the command ends."""
        size, has_ended = None, False
        while True:
            if size != self._size and self._size is not None:
                size = self._size
                await terminal.resize(*size)
            await self._send_pending(writer, terminal, None)
            if self._input_ended and not has_ended:
                has_ended = True
                await terminal.send_input(END_OF_INPUT)
            await self._has_event.wait()
            self._has_event.clear()

    async def _copy_input(self, writer: asyncio.StreamWriter) -> None:
        """Send input to a command without a terminal until the input ends."""
        copier = await start_session(
            self._api, self._pod, scripts.copy_input(self._mark), has_input=True, has_output=True
        )
        echo = asyncio.create_task(self._acknowledge(writer, copier))
        try:
            while not self._input_ended or self._input:
                await self._has_event.wait()
                self._has_event.clear()
                await self._send_pending(writer, copier, echo)
            while self._unacknowledged and not echo.done():
                self._has_progress.clear()
                await self._has_progress.wait()
        finally:
            await cancel(echo)
            await copier.close()

    async def _send_pending(
        self, writer: asyncio.StreamWriter, target: Session, echo: asyncio.Task[None] | None
    ) -> None:
        """Send the received input. Without an echo, the command accepts what has been sent."""
        while self._input:
            data = bytes(self._input[:CHUNK])
            del self._input[:CHUNK]
            self._unacknowledged += len(data)
            await target.send_input(data)
            if echo is None or echo.done():
                self._accept(writer, len(data))

    async def _acknowledge(self, writer: asyncio.StreamWriter, copier: Session) -> None:
        try:
            async for kind, data in copier.output():
                if kind == OUTPUT:
                    self._accept(writer, len(data))
        finally:  # the command has closed its input
            self._accept(writer, self._unacknowledged)

    def _accept(self, writer: asyncio.StreamWriter, count: int) -> None:
        """Send credit for input that the command has accepted. The pod's count may be wrong."""
        count = min(count, self._unacknowledged)
        self._unacknowledged -= count
        if count:
            writer.write(encode_credit(count))
        self._has_progress.set()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Process the client's frames until its connection ends."""
        frames = FrameReader(FROM_CLIENT)
        try:
            while data := await reader.read(CHUNK):
                for kind, payload in frames.feed(data):
                    self._process(kind, payload)
        except Exception as error:
            log.info("the client of a channel of %s has failed: %r", self._pod, error)

    def _process(self, kind: int, payload: bytes) -> None:
        if kind == START and not self._started.is_set():
            self._request = _parse_object(payload)
            self._started.set()
        elif kind == INPUT:
            self._input += payload
            if self._unacknowledged + len(self._input) > WINDOW:
                raise BrokenFrames("the client sent more input than the window allows")
            self._has_event.set()
        elif kind == CREDIT:
            self._window = min(self._window + decode_credit(payload), WINDOW)
            self._has_window.set()
        elif kind == RESIZE:
            self._size = terminal_size(_parse_object(payload))
            self._has_event.set()
        elif kind == END:
            self._input_ended = True
            self._has_event.set()

    async def _end_processes(self) -> bool:
        """Kill what is left of the channel. Return False if the pod or its connection has ended."""
        await self._guard.send_input(b"end\n")
        try:
            return await self._wait_for_guard(scripts.DONE)
        except TimeoutError:
            log.warning("processes of a channel of %s have not ended in %.0f s", self._pod, GUARD_SECONDS)
            return True

    async def _wait_for_guard(self, word: bytes) -> bool:
        """Return whether the guard prints this word. Raises TimeoutError."""
        async with asyncio.timeout(GUARD_SECONDS):
            async for kind, data in self._guard_output:
                if kind == 1 and word in data:
                    return True
        return False


async def cancel(task: asyncio.Task[T]) -> T | None:
    """Cancel a task. Return its result, or None if it has none. Unexpected exceptions are logged."""
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return None
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, OSError | ChannelRefused | RuntimeFailure):
        log.error("a channel failed", exc_info=error)
    return None


def _parse_object(payload: bytes) -> dict[str, Any]:
    """Return the JSON object of a frame. Raises BrokenFrames."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BrokenFrames("a frame does not contain a JSON object")
    return value


def terminal_size(size: dict[str, object]) -> tuple[int, int]:
    """Return the rows and columns. Raises ValueError."""
    rows, columns = (int(str(size.get(name, default))) for name, default in (("rows", 24), ("columns", 80)))
    if not (0 < rows <= SIZE_MAX and 0 < columns <= SIZE_MAX):
        raise ValueError(f"a terminal has 1 to {SIZE_MAX} rows and columns")
    return rows, columns


def _parse_request(request: dict[str, Any]) -> tuple[list[str], dict[str, object] | None]:
    command = [str(argument) for argument in request["command"]]
    terminal = request.get("terminal")
    if not command or not command[0] or any("\0" in argument for argument in command):
        raise ValueError("the command must not be empty or contain NUL")
    if terminal is not None and not isinstance(terminal, dict):
        raise TypeError("the terminal must be an object or null")
    return command, terminal
