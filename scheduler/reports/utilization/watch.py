"""Thread that measures utilization periodically.

The thread runs in the leading process, which sees the pods on its machine. A separate lease prevents two
processes that both believe they lead from counting the same seconds. The thread shares neither the
scheduler's lock nor its transactions, so a slow or dead thread delays nothing.
"""

import logging
import threading
from collections.abc import Callable

from django.db import InterfaceError, OperationalError, connection

from berth.core.clock import Clock
from berth.db import lease
from berth.db.lease import Held, LeadershipLost
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.context import always
from scheduler.reports.utilization.readings import look
from scheduler.reports.utilization.storage import write_readings

log = logging.getLogger(__name__)

NAME = "use"
LEASE_TIMES = 3  # lease duration in measurement intervals


class UseWatch:
    """Measures every `seconds` seconds, or never if `seconds` is 0."""

    def __init__(
        self, clock: Clock, runtime_of: Callable[[NodePool], Runtime], seconds: float,
        leads: Callable[[], bool] = always,
    ) -> None:  # fmt: skip
        self._clock, self._runtime_of, self._seconds, self._leads = clock, runtime_of, seconds, leads
        self._holder = lease.this_process()
        self._held: Held | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._seconds > 0:
            self._thread = threading.Thread(target=self._run, name="use", daemon=True)
            self._thread.start()

    def end(self, patience: float = 5.0) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(patience)

    def once(self) -> bool:
        """Measure once; return False if another process measures."""
        if not self._leads():
            self._release_lease()
            return False
        self._held = lease.acquire(NAME, self._holder, LEASE_TIMES * self._seconds)
        if self._held is None:
            return False
        write_readings(look(self._clock.now, self._runtime_of), self._held)
        return True

    def _release_lease(self) -> None:
        if self._held is not None:
            lease.release(self._held)
            self._held = None

    def _run(self) -> None:
        try:
            while not self._over.wait(self._seconds):
                self._try_once()
            self._release_lease()
        except (OperationalError, InterfaceError):
            log.info("the database was stopped first")
        finally:
            connection.close()

    def _try_once(self) -> None:
        try:
            self.once()
        except LeadershipLost as error:
            log.info("another process measures: %s", error)
        except (OperationalError, InterfaceError) as error:
            log.warning("measurements were not stored: %s", error)
            connection.close()
        except Exception:
            log.exception("pods could not be measured")
