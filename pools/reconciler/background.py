"""Reconcile remote pools in background threads, because a launch may take a minute.

Each pool has at most one pass at a time.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection

from berth.db.loops.wake import wake

THREADS_MAX = 8


class BackgroundReconciler:
    """Thread pool for reconciliation passes."""

    def __init__(self, threads_max: int = THREADS_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="reconcile")
        self._passes: dict[int, Future[bool]] = {}

    def reconcile(self, pool_id: int, run_pass: Callable[[], bool]) -> bool:
        """Start a pass unless one is running. Return the previous pass's result, or raise its error.

        Return False while a pass is running, and before the first one.
        """
        running = self._passes.get(pool_id)
        if running is not None and not running.done():
            return False
        self._passes.pop(pool_id, None)
        has_changed = running.result() if running is not None else False
        self._passes[pool_id] = self._threads.submit(_run_in_thread, run_pass)
        return has_changed

    def end(self) -> None:
        """Cancel all queued passes, and wait for running passes."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _run_in_thread(run_pass: Callable[[], bool]) -> bool:
    """Run a pass with the thread's own database connection, and wake the scheduler after changes."""
    try:
        has_changed = run_pass()
        if has_changed:
            wake("scheduler", "pool")
        return has_changed
    finally:
        connection.close()
