"""Run commands over SSH on a remote machine, such as a cluster's login node."""

import asyncio
import shlex
from collections.abc import Callable, Sequence

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.providers.commands import CommandResult
from pools.providers.ssh.endpoint import ASYNCSSH_MISSING, Endpoint, SshError, SshErrorKind

_KINDS = {
    SshErrorKind.UNREACHABLE: ProviderErrorKind.TIMEOUT,  # the command may have taken effect
    SshErrorKind.TIMEOUT: ProviderErrorKind.TIMEOUT,
    SshErrorKind.COMMAND: ProviderErrorKind.BROKEN,
}


class SshCommands:
    """Runner for commands on a remote machine. Each command uses a new SSH connection.

    `endpoint` returns the server's address and credentials, or raises SshError.
    """

    def __init__(self, machine_name: str, endpoint: Callable[[], Endpoint]) -> None:
        self.machine_name, self._endpoint = machine_name, endpoint

    def run(self, arguments: Sequence[str], *, stdin: str = "", seconds: float) -> CommandResult:
        try:
            return asyncio.run(_run(self._endpoint(), arguments, stdin, seconds))
        except SshError as error:
            kind = _KINDS.get(error.kind, ProviderErrorKind.CREDENTIALS)
            raise ProviderError(kind, error.message) from error


async def _run(endpoint: Endpoint, arguments: Sequence[str], stdin: str, seconds: float) -> CommandResult:
    # Import asyncssh only for pools with a login node, because it uses a lot of memory.
    try:
        from pools.providers.ssh.connection import connect
    except ModuleNotFoundError as error:
        raise ProviderError(ProviderErrorKind.SETTINGS, ASYNCSSH_MISSING) from error

    async with connect(endpoint) as connection:
        finished = await connection.run(shlex.join(arguments), stdin.encode(), seconds)
    return CommandResult(finished.exit_code, finished.output, finished.errors)
