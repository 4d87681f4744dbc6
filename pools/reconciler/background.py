"""Reconcile remote pools outside the scheduler loop, so that slow clouds block nobody.

A launch may take a minute; the lease of who leads lasts ten seconds. One pass of one pool goes on at a time:
what the next one finds stands in rows, as after a crash.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection

from berth.db.wake import wake

AT_ONCE = 8


class Apart:
    """`reconcile` answers at once: with what the pool's last pass came to, or that it goes on."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="reconcile")
        self._passes: dict[int, Future[bool]] = {}

    def reconcile(self, pool_id: int, one_pass: Callable[[], bool]) -> bool:
        """Raises what the last pass raised; the pool's next turn begins another."""
        going_on = self._passes.get(pool_id)
        if going_on is not None and not going_on.done():
            return False
        self._passes.pop(pool_id, None)
        did = going_on.result() if going_on is not None else False
        self._passes[pool_id] = self._threads.submit(_in_thread, one_pass)
        return did

    def end(self) -> None:
        """Waits for what is under way."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def _in_thread(one_pass: Callable[[], bool]) -> bool:
    """On a connection of the thread's own, which does not outlive the pass."""
    try:
        did = one_pass()
        if did:
            wake("scheduler", "pool")
        return did
    finally:
        connection.close()
