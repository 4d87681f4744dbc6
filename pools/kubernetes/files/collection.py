"""Copy the files of finished pods from the cluster to Berth's server."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pools.kubernetes.api_server.api import Api
from pools.kubernetes.channels.loop import CHANNELS
from pools.kubernetes.channels.session import Session, read_status, start_session
from pools.kubernetes.files.archive import BrokenArchive, FilesTooLarge, Unpacker
from pools.kubernetes.files.container import (
    CONTAINER,
    EMPTY,
    FINISH,
    MISSING,
    POD,
    WAIT,
    WORKSPACE,
    FilesToCopy,
    decode_files_to_copy,
    pack_command,
)
from pools.kubernetes.files.store import TREE, FileCopies
from pools.kubernetes.reports import command_report
from pools.runtimes.base import ChannelRejected, RuntimeFailure

log = logging.getLogger(__name__)

# Maximum concurrent transfers per process, to protect the API servers that they pass through.
TRANSFERS_MAX = 8
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between attempts
TOTAL_SECONDS = 600.0  # time limit for the copy; meanwhile, the pod occupies its GPUs
STALL_SECONDS = 60.0
END_SECONDS = 60.0  # time within which the container must end after the copy
PART = 2**20
TEXT_MAX = 300
FAILURE = "the files could not be copied from the pod"
NEEDS = "Pods with `outputs` or `keep_failed_pod` need `sh`, `sleep`, `cat` and `tar` in their image"
_TAR_LINE = re.compile(r"^(?:\S*/)?tar: (?:\./)?(.+?): (.+)$")


class _CopyFailed(Exception):
    """Raised if a copy fails and must not be retried."""


class _CopyInterrupted(Exception):
    """Raised if a copy fails and may be retried."""


@dataclass(slots=True)
class _RunningCopy:
    """Copy of a pod's files. The result of `task` says whether the container was instructed to exit."""

    task: "Future[bool]"
    done_at: float | None = None


@dataclass(frozen=True, slots=True)
class CopySource:
    """Pod whose files are copied. `path` is its API path.

    `waits` is true if the command is being stopped and may still run.
    """

    api: Api
    path: str
    wanted: FilesToCopy
    waits: bool
    has_failed: bool


def read_source(api: Api, path: str, pod: Mapping[str, Any]) -> CopySource:
    end = command_report(pod)
    has_failed = end is not None and end.exit_code != 0
    return CopySource(api, path, decode_files_to_copy(pod), waits=end is None, has_failed=has_failed)


class FileCollector:
    """Collector that copies files from finished pods. `notify` is called after each copy."""

    def __init__(self, copies: FileCopies, notify: Callable[[], None]) -> None:
        self._copies, self._notify = copies, notify
        self._lock = threading.Lock()
        self._current: dict[str, _RunningCopy] = {}
        self._slots = asyncio.Semaphore(TRANSFERS_MAX)

    def advance(self, pod_id: str, source: CopySource) -> bool:
        """Start copying a pod's files, unless copying has already begun.

        Return whether the pod must be deleted now, because its container does not respond or did not exit
        after the copy.
        """
        with self._lock:
            copy = self._current.get(pod_id)
            if copy is None:
                copy = self._current[pod_id] = _RunningCopy(CHANNELS.submit(self._collect(pod_id, source)))
            if not copy.task.done():
                return False
            if copy.task.cancelled() or copy.task.exception() is not None or not copy.task.result():
                return True
            now = time.monotonic()
            copy.done_at = copy.done_at or now
            return now - copy.done_at > END_SECONDS

    def forget(self, pod_id: str) -> None:
        """Cancel the copy from a pod that has ended. Stored files remain."""
        with self._lock:
            copy = self._current.pop(pod_id, None)
        if copy is not None:
            copy.task.cancel()

    async def _collect(self, pod_id: str, source: CopySource) -> bool:
        try:
            if source.waits:
                await self._run_with_retries(lambda: _run(source, WAIT))
            if not self._copies.has_copy(pod_id):
                await self._copy(pod_id, source)
            await self._run_with_retries(lambda: _run(source, FINISH))
        except (_CopyFailed, _CopyInterrupted) as error:
            log.warning("the container that keeps the files of pod %s does not respond: %s", pod_id, error)
            return False
        except Exception:
            log.exception("the files of pod %s could not be copied", pod_id)
            return False
        finally:
            self._notify()
        return True

    async def _copy(self, pod_id: str, source: CopySource) -> None:
        try:
            async with self._slots, asyncio.timeout(TOTAL_SECONDS):
                await self._run_with_retries(lambda: self._attempt(pod_id, source))
            return
        except TimeoutError:
            failure = f"{FAILURE} within {TOTAL_SECONDS / 60:.0f} minutes"
        except FilesTooLarge as error:
            failure = str(error)
        except (_CopyFailed, _CopyInterrupted) as error:
            failure = f"{FAILURE}: {error}"
        with self._copies.create_draft(pod_id) as draft:
            self._copies.store_draft(pod_id, draft, source.wanted, failure=failure)

    async def _run_with_retries(self, attempt: Callable[[], Any]) -> None:
        for pause in (*PAUSES, None):
            try:
                await attempt()
                return
            except _CopyInterrupted as interruption:
                if pause is None:
                    raise
                log.info("%s; Berth tries again in %s s", interruption, pause)
            await asyncio.sleep(pause)

    async def _attempt(self, pod_id: str, source: CopySource) -> None:
        """Copy all files of a failed pod if this was requested.

        Otherwise, or if the files exceed the limits, copy only the pod's outputs.
        """
        wanted, copies = source.wanted, self._copies
        takes_all = wanted.keeps and source.has_failed
        for paths, has_all in (([POD, WORKSPACE], True), (wanted.output_paths, False)):
            if has_all and not takes_all:
                continue
            with copies.create_draft(pod_id) as draft:
                try:
                    skipped = await self._fetch(source, paths, draft / TREE) if paths else {}
                except FilesTooLarge:
                    if has_all and wanted.outputs:
                        continue
                    raise
                await asyncio.to_thread(
                    copies.store_draft, pod_id, draft, wanted, has_all=has_all, skipped=skipped
                )
                return

    async def _fetch(self, source: CopySource, paths: Sequence[str], target: Path) -> dict[str, str]:
        """Unpack the files at `paths` into `target`. Return the reason for each skipped path."""
        limits = self._copies.limits()
        unpacker = Unpacker(target, (POD, WORKSPACE), limits.size, limits.files)
        session = await _start(source, pack_command(paths))
        errors = bytearray()
        try:
            async for data in _stream_archive(session, errors):
                await asyncio.to_thread(unpacker.feed, data)
        except BrokenArchive as error:
            raise _CopyInterrupted(str(error)) from error
        except OSError as error:
            raise _CopyInterrupted(f"Berth cannot store the collected files: {error.strerror}") from error
        finally:
            unpacker.close()
            await session.close()
        text = bytes(errors).decode("utf-8", "replace")
        _check(session, text, is_complete=unpacker.is_complete)
        return {**_unreadable_paths(text), **unpacker.skipped}


async def _stream_archive(session: Session, errors: bytearray) -> AsyncIterator[bytes]:
    """Yield stdout in chunks of about PART bytes, and append stderr to `errors`. Raises _CopyInterrupted."""
    output, pending = session.read_output(), bytearray()
    while True:
        try:
            async with asyncio.timeout(STALL_SECONDS):
                kind, data = await anext(output)
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise _CopyInterrupted("the pod has stopped sending data") from None
        if kind != 1:
            errors += data
            del errors[: -8 * TEXT_MAX]
            continue
        pending += data
        if len(pending) >= PART:
            yield bytes(pending)
            pending.clear()
    yield bytes(pending)


async def _run(source: CopySource, command: Sequence[str]) -> None:
    """Run a script in the container until it ends. Raises _CopyInterrupted."""
    session = await _start(source, command)
    errors = b""
    try:
        async for _, data in session.read_output():
            errors = (errors + data)[-TEXT_MAX:]
    finally:
        await session.close()
    status = read_status(session.status)
    if status is None or status.get("exit_code") != 0:
        text = errors.decode("utf-8", "replace") or str((status or {}).get("error") or "no response")
        raise _CopyInterrupted(" ".join(text.split()))


async def _start(source: CopySource, command: Sequence[str]) -> Session:
    try:
        return await start_session(
            source.api, source.path, command, has_input=False, has_output=True, container=CONTAINER
        )
    except ChannelRejected as error:
        raise (_CopyFailed if "may not use" in str(error) else _CopyInterrupted)(str(error)) from error
    except RuntimeFailure as error:
        raise _CopyInterrupted(str(error)) from error


def _check(session: Session, errors: str, *, is_complete: bool) -> None:
    """Raise _CopyFailed or _CopyInterrupted unless the whole archive has arrived."""
    status = read_status(session.status)
    if status is None:
        raise _CopyInterrupted("the connection to the pod was lost")
    code = status.get("exit_code")
    if code == MISSING:
        raise _CopyFailed(f"the pod's image has no `tar`. {NEEDS}")
    if code == EMPTY or is_complete:
        return
    text = " ".join(errors.split())[-TEXT_MAX:] or str(status.get("error") or f"tar exited with code {code}")
    raise _CopyInterrupted(text)


def _unreadable_paths(errors: str) -> dict[str, str]:
    """Return the paths that `tar` could not read, with its error messages."""
    matches = [match for line in errors.splitlines() if (match := _TAR_LINE.match(line))]
    return {match[1]: match[2] for match in matches if match[1].startswith((f"{POD}/", f"{WORKSPACE}/"))}
