"""Thread that measures utilization periodically.

The thread runs in the leader process, which sees the pods on its machine. If two processes both believe that
they are the leader, a separate lease prevents them from counting the same seconds. The thread shares neither
the scheduler's lock nor its transactions, so a slow or failed measurement does not delay the scheduler.
"""

import logging
import threading
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection

from berth.core.clock import Clock
from berth.db import lease
from berth.db.lease import HeldLease, LeadershipLost
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.context import always_leads
from scheduler.reports.isolation import record_isolation
from scheduler.reports.utilization.readings import take_readings
from scheduler.reports.utilization.storage import write_readings

log = logging.getLogger(__name__)

LEASE_NAME = "use"
# number of measurements between two isolation queries; nodes without a report are queried every
# time
ISOLATION_EVERY = 20
LEASE_INTERVALS = 3  # duration of the lease, in measurement intervals


class UtilizationWatcher:
    """Background thread that measures utilization every `seconds` seconds, or never if `seconds` is 0."""

    def __init__(
        self, clock: Clock, runtime_for: Callable[[NodePool], Runtime], seconds: float,
        leads: Callable[[], bool] = always_leads,
    ) -> None:  # fmt: skip
        self._clock, self._runtime_of, self._seconds, self._is_leader = clock, runtime_for, seconds, leads
        self._holder = lease.holder_name()
        self._held: HeldLease | None = None
        self._measured = 0
        self._stop_requested = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._seconds > 0:
            self._thread = threading.Thread(target=self._run, name="use", daemon=True)
            self._thread.start()

    def end(self, timeout: float = 5.0) -> None:
        self._stop_requested.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def measure_once(self) -> bool:
        """Measure once. Return False if another process is responsible for measuring."""
        if not self._is_leader():
            self._release_lease()
            return False
        self._held = lease.acquire(LEASE_NAME, self._holder, LEASE_INTERVALS * self._seconds)
        if self._held is None:
            return False
        write_readings(take_readings(self._clock.now, self._runtime_of), self._held)
        record_isolation(self._runtime_of, self._held, only_missing=self._measured % ISOLATION_EVERY != 0)
        self._measured += 1
        return True

    def _release_lease(self) -> None:
        if self._held is not None:
            lease.release(self._held)
            self._held = None

    def _run(self) -> None:
        try:
            while not self._stop_requested.wait(self._seconds):
                self._try_once()
            self._release_lease()
        except (OperationalError, InterfaceError):
            log.info("the database stopped before the utilization thread")
        finally:
            connection.close()

    def _try_once(self) -> None:
        try:
            self.measure_once()
        except LeadershipLost as error:
            log.info("another process is measuring: %s", error)
        except (OperationalError, InterfaceError) as error:
            log.warning("measurements could not be stored: %s", error)
            connection.close()
        except Exception:
            log.exception("pods could not be measured")
