"""Sessions within an SSH connection. Each shell, command or file transfer uses its own channel to the pod."""

import asyncio
import re
from contextlib import suppress
from typing import Any

import asyncssh

from berth.cli.forwarding import PodPort
from berth.cli.printing.text import message_line
from berth.client.aio.workloads.channels import AsyncChannel
from berth.client.channels import (
    CHUNK,
    CREDIT,
    ERRORS,
    OUTPUT,
    STATUS,
    Request,
    Terminal,
    command_request,
)
from berth.client.config import Settings
from berth.client.errors import ClientError

# environment variable that contains a channel's ID; processes that inherit it end with the channel
MARK = "BERTH_CHANNEL"
# Runs the user's command, in bash if possible, with the channel ID of the SSH connection.
# Background processes outlive their session, but end with their connection.
_LAUNCH = f"""
shell=$(command -v bash || command -v sh)
export {MARK}="$1" SHELL="${{SHELL:-$shell}}"
shift
while [ "$1" != -- ]; do export "$1"; shift; done
shift
[ $# -gt 0 ] || exec "$shell"
exec "$shell" -c "$1"
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_READ_ONLY = {"UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS"}  # variables that shells refuse to set
_REASON_SECONDS = 2.0  # time limit for closing the connection
_FAILED = 255  # exit code of ssh if it cannot connect


class Process(asyncssh.SSHServerProcess[bytes]):
    """SSH session whose file transfers are served by the pod rather than by asyncssh."""

    def __init__(self, channels: "PodChannels") -> None:
        super().__init__(channels.serve_session, None, 0, False)  # type: ignore[arg-type]

    def subsystem_requested(self, subsystem: str) -> bool:
        return subsystem == "sftp"

    def session_started(self) -> None:
        reader = asyncssh.SSHReader[bytes](self, self._chan)
        writer, errors = (
            asyncssh.SSHWriter[bytes](self, self._chan, kind)
            for kind in (None, asyncssh.EXTENDED_DATA_STDERR)
        )
        handler = self._start_process(reader, writer, errors)
        assert self._conn is not None
        assert handler is not None
        self._conn.create_task(handler)


class PodChannels:
    """Channels to one pod, opened for one SSH connection."""

    def __init__(self, settings: Settings, workload_id: str, pod: str | None) -> None:
        self._settings, self._workload_id, self._pod = settings, workload_id, pod
        self.mark = ""
        self._served = set[Process]()

    def open(self, request: Request) -> AsyncChannel:
        return AsyncChannel(self._settings, self._workload_id, request, pod=self._pod)

    def port(self, number: int) -> PodPort:
        return PodPort(self._settings, self._workload_id, number, self._pod)

    async def serve_session(self, process: Process) -> None:
        """Serve an SSH session until its command has ended or the client has closed it."""
        self._served.add(process)
        try:
            async with self.open(self._find_request(process)) as channel:
                await _Session(process, channel).run()
        except ClientError as error:
            _end_process(process, str(error))
        finally:
            self._served.discard(process)

    def end_sessions(self, reason: str) -> None:
        """End all sessions with a message.

        Later messages would be lost, because `ssh` exits with its last session.
        """
        for process in self._served:
            _end_process(process, reason)

    def _find_request(self, process: Process) -> Request:
        if process.subsystem == "sftp":
            return {"sftp": True}
        variables = [
            f"{name}={value}" for name, value in process.env.items() if _is_settable(str(name), str(value))
        ]
        command = [] if process.command is None else [process.command]
        arguments = ["sh", "-c", _LAUNCH, "sh", self.mark, *variables, "--", *command]
        return command_request(arguments, _find_terminal(process))


class _Session:
    """Bridge between an SSH session and its channel to the pod."""

    def __init__(self, process: Process, channel: AsyncChannel) -> None:
        self._process, self._channel = process, channel
        self._has_credit = asyncio.Event()

    async def run(self) -> None:
        """Copy input and output until the command in the pod has ended. Raises ClientError."""
        sender = asyncio.create_task(self._send())
        receiver = asyncio.create_task(self._receive())
        closed = asyncio.create_task(self._process.wait_closed())
        tasks: set[asyncio.Task[Any]] = {sender, receiver, closed}
        try:
            await asyncio.wait({receiver, closed}, return_when=asyncio.FIRST_COMPLETED)
            if receiver.done():
                receiver.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            while self._channel.window <= 0:
                self._has_credit.clear()
                await self._has_credit.wait()
            try:
                data = await self._process.stdin.read(min(CHUNK, self._channel.window))
            except asyncssh.TerminalSizeChanged as size:
                await self._channel.resize(size.height or 24, size.width or 80)
            except asyncssh.SignalReceived as signal:
                await self._channel.send_signal(signal.signal)
            except asyncssh.BreakReceived:
                await self._channel.send_signal("INT")
            else:
                if not data:
                    await self._channel.end_input()
                    return
                await self._channel.send_input(data)

    async def _receive(self) -> None:
        while True:
            kind, payload = await self._channel.receive()
            if kind == CREDIT:
                self._has_credit.set()
            elif kind in (OUTPUT, ERRORS):
                writer = self._process.stdout if kind == OUTPUT else self._process.stderr
                writer.write(payload)
                await writer.drain()
            elif kind == STATUS:
                break
        if self._channel.failure:
            self._process.stderr.write(f"{message_line(self._channel.failure)}\r\n".encode())
        # The pod itself may have ended. Wait, because the connection then ends with the reason.
        if self._channel.signal in ("TERM", "KILL"):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait_closed(), _REASON_SECONDS)
        if self._channel.signal:
            self._process.exit_with_signal(self._channel.signal)
        else:
            self._process.exit(self._channel.exit_code or 0)


def _find_terminal(process: Process) -> Terminal | None:
    if process.term_type is None:
        return None
    columns, rows, _, _ = process.term_size
    return Terminal(rows or 24, columns or 80, process.term_type or "xterm-256color")


def _is_settable(name: str, value: str) -> bool:
    is_name = _VARIABLE.fullmatch(name) is not None and name not in _READ_ONLY
    return is_name and not name.startswith("BERTH_") and "\0" not in value


def _end_process(process: Process, message: str) -> None:
    with suppress(OSError):  # the client may have closed the session
        process.stderr.write(f"{message_line(message)}\r\n".encode())
        process.exit(_FAILED)
