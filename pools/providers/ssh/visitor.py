"""Run SSH tasks on many hosts concurrently in a separate thread.

A hanging host blocks only its own task, which has time limits.
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pools.engine.ssh_hosts import Task
from pools.providers.ssh.endpoint import SshError, SshErrorKind
from pools.providers.ssh.scripts import HostFacts

VISITS_MAX = 200  # maximum number of concurrent tasks; further tasks wait


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a task: the host's properties, its scanned key, or the error."""

    task: Task
    facts: HostFacts | None = None
    scanned_key: str = ""
    error: SshError | None = None


class Visitor:
    """Running and completed tasks, by host key. Each host has at most one."""

    def __init__(self) -> None:
        self._visits: dict[int, tuple[Task, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: asyncio.Semaphore | None = None

    def start(self, host: int, task: Task, visit: Coroutine[Any, Any, Any]) -> None:
        """Start a task, unless the host already has one whose outcome has not been collected."""
        with self._lock:
            if host in self._visits:
                visit.close()
                return
            future = asyncio.run_coroutine_threadsafe(self._run(visit), self._running_loop())
            self._visits[host] = task, future

    def hosts(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._visits)

    def collect(self, hosts: frozenset[int]) -> Mapping[int, Outcome]:
        """Return and remove the completed tasks of these hosts."""
        with self._lock:
            ended = [host for host in hosts if host in self._visits and self._visits[host][1].done()]
            visits = {host: self._visits.pop(host) for host in ended}
        return {host: _outcome(task, future) for host, (task, future) in visits.items()}

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="ssh-hosts", daemon=True).start()
        return self._loop

    async def _run(self, visit: Coroutine[Any, Any, Any]) -> Any:
        if self._slots is None:
            self._slots = asyncio.Semaphore(VISITS_MAX)
        async with self._slots:
            return await visit


def _outcome(task: Task, future: "Future[Any]") -> Outcome:
    try:
        result = future.result()
    except SshError as error:
        return Outcome(task, error=error)
    except Exception as error:
        message = f"the task failed: {type(error).__name__}: {error}"
        return Outcome(task, error=SshError(SshErrorKind.COMMAND, message))
    return Outcome(task, scanned_key=result) if task is Task.SCAN else Outcome(task, facts=result)
