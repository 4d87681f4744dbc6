"""Run commands in pods through exec calls. A guard kills a command when its connection ends."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels import scripts
from pools.kubernetes.channels.client import ChannelClient, terminal_size
from pools.kubernetes.channels.session import Session, read_status, start_session
from pools.kubernetes.channels.tasks import cancel_task
from pools.runtimes.base import ChannelRejected, RuntimeFailure
from pools.runtimes.shim.channels.frames import OUTPUT

log = logging.getLogger(__name__)

GUARD_SECONDS = 15.0  # time for the guard to start, or to kill the channel's processes
END_OF_INPUT = b"\x04"  # byte that a terminal sends at the end of the input
NO_SHELL = "its image lacks `sh` or `mkfifo`, which Berth needs to stop commands when their connection closes"


class Command:
    """Command that runs in a channel.

    It uses pipes unless `terminal` is set. Raises ValueError if the terminal's size is invalid.
    """

    def __init__(
        self,
        api: Api,
        pod: str,
        client: ChannelClient,
        command: list[str],
        terminal: dict[str, object] | None,
    ) -> None:
        self._api, self._pod, self._mark = api, pod, secrets.token_hex(8)
        self._client, self._command, self._terminal = client, command, terminal
        if terminal is not None and client.size is None:
            client.size = terminal_size(terminal)

    async def run(self) -> dict[str, object] | None:
        """Run the command until all of its processes have ended, and return its status.

        Return None if the connection to the cluster was lost. Raises ChannelRejected or RuntimeFailure if the
        command could not be started.
        """
        guard = await self._start_guard()
        is_connected = False
        try:
            status = await self._run()
        finally:
            is_connected = await guard.end_processes()
            await guard.close()
        return status if is_connected else None

    async def _start_guard(self) -> "_Guard":
        session = await start_session(
            self._api, self._pod, scripts.guard_command(self._mark), has_input=True, has_output=True
        )
        guard = _Guard(session, self._pod)
        try:
            if not await guard.wait_for(scripts.READY):
                raise ChannelRejected(NO_SHELL)
        except BaseException as error:
            await guard.close()
            if isinstance(error, TimeoutError):
                raise RuntimeFailure("the node did not start the command") from None
            raise
        return guard

    async def _run(self) -> dict[str, object] | None:
        has_terminal = self._terminal is not None
        if self._terminal is None:
            script = scripts.pipe_command(self._mark, self._command)
        else:
            assert self._client.size is not None
            terminal_type = str(self._terminal.get("type") or "xterm-256color")
            script = scripts.terminal_command(self._mark, self._command, terminal_type, *self._client.size)
        session = await start_session(
            self._api, self._pod, script,
            has_input=has_terminal, has_output=True, has_terminal=has_terminal,
        )  # fmt: skip
        output = asyncio.create_task(self._send_output(session))
        sender = asyncio.create_task(self._drive_terminal(session) if has_terminal else self._copy_input())
        try:
            await asyncio.wait({output, sender}, return_when=asyncio.FIRST_COMPLETED)
            if not output.done():
                sender.result()  # raises the sender's error if the input could not be delivered
            await output
        finally:
            await cancel_task(sender)
            await cancel_task(output)
            await session.close()
        return read_status(session.status)

    async def _send_output(self, session: Session) -> None:
        async for kind, data in session.read_output():
            await self._client.send_output(kind, data)

    async def _drive_terminal(self, terminal: Session) -> None:
        client, size, has_ended = self._client, None, False
        while True:
            if size != client.size and client.size is not None:
                size = client.size
                await terminal.resize(*size)
            await self._send_pending_input(terminal, None)
            if client.input_ended and not has_ended:
                has_ended = True
                await terminal.send_input(END_OF_INPUT)
            await client.has_event.wait()
            client.has_event.clear()

    async def _copy_input(self) -> None:
        client = self._client
        copier = await start_session(
            self._api, self._pod, scripts.input_command(self._mark), has_input=True, has_output=True
        )
        echo = asyncio.create_task(self._acknowledge(copier))
        try:
            while not client.input_ended or client.has_input:
                await client.has_event.wait()
                client.has_event.clear()
                await self._send_pending_input(copier, echo)
            while client.unacknowledged and not echo.done():
                client.has_progress.clear()
                await client.has_progress.wait()
        finally:
            await cancel_task(echo)
            await copier.close()

    async def _send_pending_input(self, target: Session, echo: asyncio.Task[None] | None) -> None:
        """Send the received input to the command.

        If the pod does not acknowledge input, treat it as accepted once it has been sent.
        """
        while data := self._client.take_input():
            await target.send_input(data)
            if echo is None or echo.done():
                self._client.acknowledge(len(data))

    async def _acknowledge(self, copier: Session) -> None:
        try:
            async for kind, data in copier.read_output():
                if kind == OUTPUT:
                    self._client.acknowledge(len(data))
        finally:  # the command reads no more input
            self._client.acknowledge(self._client.unacknowledged)


class _Guard:
    """Script in the pod that kills a channel's processes when the script's stdin is closed."""

    def __init__(self, session: Session, pod: str) -> None:
        self._session, self._pod = session, pod
        self._output: AsyncIterator[tuple[int, bytes]] = session.read_output()

    async def end_processes(self) -> bool:
        """Kill the channel's remaining processes. Return False if the connection to the pod was lost."""
        await self._session.send_input(b"end\n")
        try:
            return await self.wait_for(scripts.DONE)
        except TimeoutError:
            log.warning("processes of a channel of %s did not end within %.0f s", self._pod, GUARD_SECONDS)
            return True

    async def wait_for(self, word: bytes) -> bool:
        """Wait until the guard prints `word`. Return False if the guard exits first. Raises TimeoutError."""
        async with asyncio.timeout(GUARD_SECONDS):
            async for kind, data in self._output:
                if kind == OUTPUT and word in data:
                    return True
        return False

    async def close(self) -> None:
        """Close the connection, so that the guard kills the remaining processes."""
        await self._session.close()


def parse_command(request: dict[str, Any]) -> tuple[list[str], dict[str, object] | None]:
    """Return the request's command and terminal. Raises ValueError, KeyError or TypeError."""
    command = [str(argument) for argument in request["command"]]
    terminal = request.get("terminal")
    if not command or not command[0] or any("\0" in argument for argument in command):
        raise ValueError("the command must not be empty or contain NUL bytes")
    if terminal is not None and not isinstance(terminal, dict):
        raise TypeError("the terminal must be an object or null")
    return command, terminal
