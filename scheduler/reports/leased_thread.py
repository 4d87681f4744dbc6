"""Threads of the leader process that each repeat one job, so that the job does not delay the scheduler.

Each thread has its own lease, so no job runs in two processes.
"""

import logging
import threading
from collections.abc import Callable
from typing import ClassVar

from django.db import InterfaceError, OperationalError, connection

from berth.core.clock import Clock
from berth.db.loops import lease
from berth.db.loops.lease import HeldLease, LeadershipLost
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.context import always_leads

log = logging.getLogger(__name__)

LEASE_INTERVALS = 3  # duration of the lease, as a multiple of the thread's interval


class LeasedThread:
    """Background thread that calls `work` every `seconds` seconds, or never if `seconds` is 0."""

    lease_name: ClassVar[str]
    subject: ClassVar[str]  # subject of the log message `... failed`

    def __init__(
        self, clock: Clock, runtime_for: Callable[[NodePool], Runtime], seconds: float,
        leads: Callable[[], bool] = always_leads,
    ) -> None:  # fmt: skip
        self._clock, self._runtime_of = clock, runtime_for
        self._seconds, self._is_leader = seconds, leads
        self._holder = lease.holder_name()
        self._held: HeldLease | None = None
        self._stop_requested = threading.Event()
        self._thread: threading.Thread | None = None

    def has_work(self) -> bool:
        """Return whether there may be work to do. While there is none, the lease is not written."""
        return True

    def run_job(self, held: HeldLease) -> None:
        """Run the job once. Subclasses must fence all writes with `held`."""
        raise NotImplementedError

    def begin(self) -> None:
        if self._seconds > 0:
            self._thread = threading.Thread(target=self._run, name=self.lease_name, daemon=True)
            self._thread.start()

    def end(self, timeout: float = 5.0) -> None:
        self._stop_requested.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def run_once(self) -> bool:
        """Run the job once if there may be work. Return False if another process leads or holds the lease."""
        if not self._is_leader():
            self._release_lease()
            return False
        if not self.has_work():
            return True
        self._held = lease.acquire(self.lease_name, self._holder, LEASE_INTERVALS * self._seconds)
        if self._held is None:
            return False
        self.run_job(self._held)
        return True

    def _release_lease(self) -> None:
        if self._held is not None:
            lease.release(self._held)
            self._held = None

    def _run(self) -> None:
        try:
            while not self._stop_requested.wait(self._seconds):
                self._run_once_safely()
            self._release_lease()
        except (OperationalError, InterfaceError):
            log.info("the database stopped before the thread %s", self.lease_name)
        finally:
            connection.close()

    def _run_once_safely(self) -> None:
        try:
            self.run_once()
        except LeadershipLost as error:
            log.info("another process has taken over %s: %s", self.subject, error)
        except (OperationalError, InterfaceError) as error:
            log.warning("%s could not be stored: %s", self.subject, error)
            connection.close()
        except Exception:
            log.exception("%s failed", self.subject)
