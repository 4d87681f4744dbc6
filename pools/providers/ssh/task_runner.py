"""Run SSH tasks for many hosts in a background thread. A hanging host delays only its own task."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pools.engine.ssh_hosts import HostTask
from pools.providers.ssh.endpoint import SshError, SshErrorKind
from pools.providers.ssh.scripts import HostFacts

CONCURRENT_TASKS_MAX = 200  # maximum number of concurrent tasks; further tasks wait


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """Outcome of a task: the host's properties, its host key, or the error."""

    task: HostTask
    facts: HostFacts | None = None
    scanned_key: str = ""
    error: SshError | None = None


class TaskRunner:
    """Running and completed tasks, keyed by host ID. Each host has at most one task."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[HostTask, Future[Any]]] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots: asyncio.Semaphore | None = None

    def start(self, host: int, task: HostTask, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Start a task for a host, unless the host has a task whose outcome has not been collected."""
        with self._lock:
            if host in self._tasks:
                coroutine.close()
                return
            future = asyncio.run_coroutine_threadsafe(self._run(coroutine), self._running_loop())
            self._tasks[host] = task, future

    def hosts_with_tasks(self) -> frozenset[int]:
        with self._lock:
            return frozenset(self._tasks)

    def collect_outcomes(self, hosts: frozenset[int]) -> Mapping[int, TaskOutcome]:
        """Remove and return the outcomes of the hosts' completed tasks."""
        with self._lock:
            ended = [host for host in hosts if host in self._tasks and self._tasks[host][1].done()]
            tasks = {host: self._tasks.pop(host) for host in ended}
        return {host: _task_outcome(task, future) for host, (task, future) in tasks.items()}

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="ssh-hosts", daemon=True).start()
        return self._loop

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._slots is None:
            self._slots = asyncio.Semaphore(CONCURRENT_TASKS_MAX)
        async with self._slots:
            return await coroutine


def _task_outcome(task: HostTask, future: "Future[Any]") -> TaskOutcome:
    try:
        result = future.result()
    except SshError as error:
        return TaskOutcome(task, error=error)
    except Exception as error:
        message = f"the task failed: {type(error).__name__}: {error}"
        return TaskOutcome(task, error=SshError(SshErrorKind.COMMAND, message))
    return TaskOutcome(task, scanned_key=result) if task is HostTask.SCAN else TaskOutcome(task, facts=result)
