"""Connect to SSH servers whose host keys are pinned.

The user's SSH configuration is ignored. Import this only where needed, because asyncssh uses 34 MiB of
memory.
"""

import asyncio
import logging
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncssh

from pools.providers.ssh.endpoint import Endpoint, SshError, SshErrorKind, Timeouts, fingerprint

KEEPALIVE_SECONDS = 10
KEEPALIVES_MISSED = 3
OUTPUT_MAX = 1 << 20  # maximum bytes per stream; further output is discarded
CHUNK = 1 << 16
HOST_KEY_ALGORITHMS = ("ssh-ed25519", "ecdsa-sha2-nistp???", "rsa-sha2-???")
TIMEOUTS = Timeouts()

logging.getLogger("asyncssh").setLevel(logging.WARNING)  # asyncssh would log every step of every connection


@dataclass(frozen=True, slots=True)
class SshCommandResult:
    """Result of a command. If a signal ended the command, the exit code is 128 plus the signal number."""

    exit_code: int
    output: str
    errors: str

    def raise_if_failed(self, action: str) -> str:
        """Return stdout. If the command failed, raise SshError with the end of its output."""
        if self.exit_code:
            reason = (self.errors.strip() or self.output.strip())[-500:]
            message = f"{action} failed with exit code {self.exit_code}" + (f": {reason}" if reason else "")
            raise SshError(SshErrorKind.COMMAND, message)
        return self.output


class Connection:
    """Open SSH connection. All methods raise SshError on failure."""

    def __init__(self, connection: asyncssh.SSHClientConnection, name: str, timeouts: Timeouts) -> None:
        self._connection, self._name, self._timeouts = connection, name, timeouts

    async def run(self, command: str, stdin: bytes = b"", timeout: float | None = None) -> SshCommandResult:
        """Run a shell command.

        The command has no terminal, and may continue on the server after a timeout.
        """
        limit = self._timeouts.command if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                return await self._run(command, stdin)
        except TimeoutError:
            message = f"{self._name} did not finish a command within {limit:g} s"
            raise SshError(SshErrorKind.TIMEOUT, message) from None
        except (asyncssh.Error, OSError) as error:
            message = f"the connection to {self._name} was lost: {_failure_reason(error)}"
            raise SshError(SshErrorKind.UNREACHABLE, message) from None

    async def upload(self, content: bytes, path: str, *, mode: int = 0o600) -> None:
        """Replace a file atomically. The server needs a shell, but no SFTP."""
        target, draft = shlex.quote(path), shlex.quote(path + ".new")
        command = f"umask 077; cat > {draft} && chmod {mode:o} {draft} && mv -f {draft} {target}"
        (await self.run(command, content)).raise_if_failed(f"writing {path} on {self._name}")

    async def _run(self, command: str, stdin: bytes) -> SshCommandResult:
        process = await self._connection.create_process(command, encoding=None)
        try:
            output, errors, _ = await asyncio.gather(
                _read(process.stdout), _read(process.stderr), _write(process, stdin)
            )
            await process.wait_closed()
        finally:
            # Do not wait: after a timeout, OpenSSH closes the channel only when the command has ended.
            process.close()
        code = process.returncode
        return SshCommandResult(255 if code is None else code if code >= 0 else 128 - code, output, errors)


@asynccontextmanager
async def connect(endpoint: Endpoint, timeouts: Timeouts = TIMEOUTS) -> AsyncIterator[Connection]:
    """Connect and log in. Raises SshError, for example if the host key is not the pinned one."""
    async with AsyncExitStack() as stack:
        opened = await _within_timeout(endpoint, timeouts, _open(endpoint, stack))
        yield Connection(opened, endpoint.name, timeouts)


async def scan_host_key(endpoint: Endpoint, timeouts: Timeouts = TIMEOUTS) -> str:
    """Return the host key that the server presents, without logging in. Raises SshError.

    The keys of bastions must be pinned.
    """
    async with AsyncExitStack() as stack:
        key = await _within_timeout(endpoint, timeouts, _scan_host_key(endpoint, stack))
    return _public_key_text(key)


async def _scan_host_key(endpoint: Endpoint, stack: AsyncExitStack) -> asyncssh.SSHKey:
    tunnel = None if endpoint.bastion is None else await _open(endpoint.bastion, stack)
    with _SshErrors(endpoint):
        key = await asyncssh.get_server_host_key(endpoint.address, endpoint.port, tunnel=tunnel, config=None)
    if key is None:
        raise SshError(SshErrorKind.HOST_KEY, f"{endpoint.name} presented no host key")
    return key


async def _open(endpoint: Endpoint, stack: AsyncExitStack) -> asyncssh.SSHClientConnection:
    private_key = import_private_key(endpoint.private_key)
    if not endpoint.host_key:
        raise SshError(
            SshErrorKind.HOST_KEY, f"the host key of {endpoint.name} is not pinned. Pin the key first"
        )
    pinned = _import_host_key(endpoint)
    tunnel = None if endpoint.bastion is None else await _open(endpoint.bastion, stack)
    client = _Client()
    with _SshErrors(endpoint, client):
        opened = await asyncssh.connect(
            endpoint.address, endpoint.port, tunnel=tunnel, config=None, username=endpoint.user,
            client_factory=lambda: client, known_hosts=([pinned], [], []), client_keys=[private_key],
            server_host_key_algs=_host_key_algorithms(pinned), agent_path=None, preferred_auth="publickey",
            gss_host=None, x509_trusted_certs=None,
            keepalive_interval=KEEPALIVE_SECONDS, keepalive_count_max=KEEPALIVES_MISSED,
        )  # fmt: skip
    stack.push_async_callback(_close, opened)
    return opened


def import_private_key(text: str) -> asyncssh.SSHKey:
    """Parse a private key. Raises SshError with a remedy if the key cannot be used."""
    try:
        return asyncssh.import_private_key(text)
    except asyncssh.KeyImportError as error:
        if "Passphrase" in str(error):
            remedy = "Remove the passphrase with `ssh-keygen -p`, or create a key for Berth."
            message = f"the private key is protected by a passphrase. {remedy}"
        else:
            message = f"the private key cannot be read: {_failure_reason(error)}. Use an OpenSSH key."
        raise SshError(SshErrorKind.KEY, message) from None


def _import_host_key(endpoint: Endpoint) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_public_key(endpoint.host_key)
    except asyncssh.KeyImportError as error:
        message = f"the pinned host key of {endpoint.name} cannot be used: {_failure_reason(error)}"
        raise SshError(SshErrorKind.HOST_KEY, message) from None


class _Client(asyncssh.SSHClient):
    """SSH client that records the server's host key if it is not the pinned one."""

    presented = ""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.presented = _public_key_text(key)
        return False


class _SshErrors:
    """Context manager that converts asyncssh and network errors to SshError with the server's name."""

    def __init__(self, endpoint: Endpoint, client: _Client | None = None) -> None:
        self._endpoint, self._client = endpoint, client

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        # Invalid DNS names, such as a..b, raise UnicodeError.
        if isinstance(error, TimeoutError):
            return
        if isinstance(error, asyncssh.Error | OSError | UnicodeError):
            raise self._to_ssh_error(error) from None

    def _to_ssh_error(self, error: Exception) -> SshError:
        endpoint, name = self._endpoint, self._endpoint.name
        presented = self._client.presented if self._client else ""
        if presented:
            pinned = fingerprint(endpoint.host_key)
            message = f"{name} presented the host key {fingerprint(presented)}, but {pinned} is pinned"
            return SshError(SshErrorKind.HOST_KEY, message, presented)
        if isinstance(error, asyncssh.HostKeyNotVerifiable | asyncssh.KeyExchangeFailed):
            return SshError(
                SshErrorKind.HOST_KEY,
                f"{name} does not present the pinned host key: {_failure_reason(error)}",
            )
        if isinstance(error, asyncssh.PermissionDenied):
            message = f"{name} rejected the login of user {endpoint.user} with the key {_key_name(endpoint)}"
            return SshError(SshErrorKind.LOGIN, message)
        if isinstance(error, socket.gaierror | UnicodeError):
            return SshError(SshErrorKind.UNREACHABLE, f"the address {endpoint.address} cannot be resolved")
        through = f" through {endpoint.bastion.name}" if endpoint.bastion else ""
        return SshError(
            SshErrorKind.UNREACHABLE, f"{name} cannot be reached{through}: {_failure_reason(error)}"
        )


async def _within_timeout(endpoint: Endpoint, timeouts: Timeouts, opening: Any) -> Any:
    try:
        async with asyncio.timeout(timeouts.connect):
            return await opening
    except TimeoutError:
        message = f"{endpoint.name} did not respond within {timeouts.connect:g} s"
        raise SshError(SshErrorKind.TIMEOUT, message) from None


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    connection.abort()
    await connection.wait_closed()


async def _read(stream: Any) -> str:
    content = bytearray()
    while part := await stream.read(CHUNK):
        content += part[: OUTPUT_MAX - len(content)]
    return content.decode(errors="replace")


async def _write(process: Any, stdin: bytes) -> None:
    try:
        for start in range(0, len(stdin), CHUNK):
            process.stdin.write(stdin[start : start + CHUNK])
            await process.stdin.drain()
        process.stdin.write_eof()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the command ended without reading all of its input


def _host_key_algorithms(pinned: asyncssh.SSHKey) -> str:
    """Return the host key algorithms to offer, starting with those of the pinned key."""
    return ",".join([*(algorithm.decode() for algorithm in pinned.sig_algorithms), *HOST_KEY_ALGORITHMS])


def _public_key_text(key: asyncssh.SSHKey) -> str:
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def _key_name(endpoint: Endpoint) -> str:
    return fingerprint(_public_key_text(import_private_key(endpoint.private_key).convert_to_public()))


def _failure_reason(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, asyncssh.Error) and error.strerror:
        return error.strerror
    return str(error).strip() or type(error).__name__
