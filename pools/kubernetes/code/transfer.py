"""Download a code archive from Berth's server, and unpack it in a pod through an exec call."""

import asyncio
import json
import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import httpx

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.session import Session, read_status, start_session
from pools.kubernetes.channels.tasks import cancel_task
from pools.kubernetes.code.container import BLOCK, CONTAINER, INCOMPLETE, MISSING, end_marker, unpack_command
from pools.runtimes.base import ChannelRejected, RuntimeFailure

PART = 32 * 1024
WINDOW = 4 * BLOCK  # maximum bytes that the cluster has to buffer, because its protocol has no flow control
TAR_END = 1024  # number of zero bytes at the end of a tar archive
TEXT_MAX = 300
STALL_SECONDS = 60.0  # a transfer without progress for this long has failed
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # HTTP statuses after which another attempt may succeed
LOST = "the connection to the pod was lost"


class TransferFailed(Exception):
    """Raised if a transfer fails and must not be retried."""


class TransferInterrupted(Exception):
    """Raised if a transfer may be retried. `was_sending` is true if the server's response ended early."""

    def __init__(self, message: str, *, was_sending: bool = False) -> None:
        super().__init__(message)
        self.was_sending = was_sending


@dataclass(frozen=True, slots=True)
class CodeSource:
    """Source of a pod's code. `ca` contains the server's CA certificates, or is empty to use the system's."""

    url: str
    ca: str
    secret: str = field(repr=False)


async def send_code(
    source: CodeSource, api: Api, pod: str, report: Callable[[str], None], *, verifies: bool
) -> None:
    """Copy the code to a pod.

    `pod` is the pod's API path. If `verifies` is set, the server checks the code's files first. Raises
    TransferFailed or TransferInterrupted.
    """
    async with _download(source, verifies=verifies) as response:
        mark = secrets.token_hex(8)
        extra = end_marker(mark)
        size = int(response.headers["Content-Length"])
        try:
            session = await start_session(
                api, pod, unpack_command(mark, size + len(extra)),
                has_input=True, has_output=True, container=CONTAINER,
            )  # fmt: skip
        except (ChannelRejected, RuntimeFailure) as error:
            raise TransferInterrupted(str(error)) from error
        try:
            unpacking = _Unpacking(session, size, report)
            await unpacking.run(_archive_chunks(response, size, extra))
        finally:
            await session.close()
        _check(session, " ".join(unpacking.errors.decode("utf-8", "replace").split())[-TEXT_MAX:])


@asynccontextmanager
async def _download(source: CodeSource, *, verifies: bool) -> AsyncIterator[httpx.Response]:
    """Yield the response with the archive. Redirects are rejected, because they would leak the secret."""
    headers = {"Authorization": f"Bearer {source.secret}", "Accept-Encoding": "identity"}
    is_local = source.url.startswith(("http://127.", "http://localhost", "http://[::1]"))
    client = httpx.AsyncClient(
        verify=ssl.create_default_context(cadata=source.ca or None), timeout=STALL_SECONDS,
        follow_redirects=False, trust_env=not is_local,
    )  # fmt: skip
    try:
        async with (
            client,
            client.stream("GET", source.url, params={"verify": "true"} if verifies else None, headers=headers)
            as response,
        ):  # fmt: skip
            if response.status_code != 200:
                raise _to_error(response.status_code, await response.aread())
            yield response
    except httpx.HTTPError as error:
        server = httpx.URL(source.url).netloc.decode()
        raise TransferInterrupted(f"{server} cannot be reached: {error or type(error).__name__}") from error


def _to_error(status: int, body: bytes) -> Exception:
    text = body[:4096].decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["detail"])
    message = f"the server responded with {status}: {text[:TEXT_MAX]}"
    return TransferInterrupted(message) if status in TEMPORARY else TransferFailed(message)


async def _archive_chunks(response: httpx.Response, size: int, extra: bytes) -> AsyncIterator[bytes]:
    """Yield the archive's chunks, with the archive entry `extra` added before the end.

    Raises TransferInterrupted if the archive is incomplete.
    """
    end, received = b"", 0
    try:
        async for data in response.aiter_raw(PART):
            received += len(data)
            end += data
            yield end[:-TAR_END]
            end = end[-TAR_END:]
    except httpx.HTTPError as error:
        raise TransferInterrupted("the connection to the server was lost", was_sending=True) from error
    if received != size or end != bytes(TAR_END):
        raise TransferInterrupted("the server's archive is incomplete", was_sending=True)
    yield extra + end


class _Unpacking:
    """Script that unpacks an archive in the pod. `errors` contains the end of its stderr."""

    def __init__(self, session: Session, size: int, report: Callable[[str], None]) -> None:
        self._session, self._size, self._report = session, size, report
        self._sent = self._accepted = 0  # bytes
        self._has_progress = asyncio.Event()
        self.errors = bytearray()

    async def run(self, parts: AsyncIterator[bytes]) -> None:
        """Send the archive and wait until it is unpacked. Raises TransferInterrupted."""
        output, sender = asyncio.create_task(self._receive()), asyncio.create_task(self._send(parts))
        try:
            await asyncio.wait({output, sender}, return_when=asyncio.FIRST_COMPLETED)
            if not output.done():
                sender.result()
                while not output.done():
                    await self._wait_for_progress()
        finally:
            sender.cancel()
            await asyncio.wait({sender})
            await cancel_task(output)

    async def _send(self, parts: AsyncIterator[bytes]) -> None:
        async for data in parts:
            for begin in range(0, len(data), PART):
                part = data[begin : begin + PART]
                while self._sent + len(part) > self._accepted + WINDOW:
                    await self._wait_for_progress()
                await self._session.send_input(part)
                self._sent += len(part)

    async def _receive(self) -> None:
        async for kind, data in self._session.read_output():
            if kind == 1:
                self._accepted += len(data) * BLOCK
                self._report(f"{self._accepted / 1e6:.0f} of {self._size / 1e6:.0f} MB")
            else:
                self.errors += data
                del self.errors[: -4 * TEXT_MAX]
            self._has_progress.set()
        self._has_progress.set()

    async def _wait_for_progress(self) -> None:
        self._has_progress.clear()
        try:
            async with asyncio.timeout(STALL_SECONDS):
                await self._has_progress.wait()
        except TimeoutError:
            raise TransferInterrupted("the pod has stopped accepting the code") from None


def _check(session: Session, errors: str) -> None:
    """Raise TransferFailed or TransferInterrupted unless the script succeeded."""
    status = read_status(session.status)
    if status is None:
        raise TransferInterrupted(LOST)
    code = status.get("exit_code")
    if code == INCOMPLETE:
        raise TransferInterrupted("the archive is incomplete")
    if code == MISSING:
        raise TransferFailed(f"{errors}. Pods with code need `sh`, `sleep`, `dd` and `tar` in their image")
    if code != 0:
        raise TransferFailed(
            errors or str(status.get("error") or f"the script that unpacks it exited with code {code}")
        )
