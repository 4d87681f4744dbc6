"""Thread that measures utilization periodically.

The thread runs in the leader process, because that process has access to the pods on its machine.
"""

from collections.abc import Callable
from typing import ClassVar

from berth.core.clock import Clock
from berth.db.lease import HeldLease
from pools.models import NodePool
from pools.runtimes.base import Runtime
from scheduler.loop.context import always_leads
from scheduler.reports.isolation import record_isolation
from scheduler.reports.leased_thread import LeasedThread
from scheduler.reports.utilization.readings import take_readings
from scheduler.reports.utilization.storage import write_readings

# number of measurements between two isolation queries; nodes without a report are queried every time
ISOLATION_EVERY = 20


class UtilizationWatcher(LeasedThread):
    """Thread that measures utilization. Its lease ensures that no second is counted twice."""

    lease_name: ClassVar[str] = "use"
    subject: ClassVar[str] = "the measurement of utilization"

    def __init__(
        self, clock: Clock, runtime_for: Callable[[NodePool], Runtime], seconds: float,
        leads: Callable[[], bool] = always_leads,
    ) -> None:  # fmt: skip
        super().__init__(seconds, leads)
        self._clock, self._runtime_of = clock, runtime_for
        self._measured = 0

    def work(self, held: HeldLease) -> None:
        write_readings(take_readings(self._clock.now, self._runtime_of), held)
        record_isolation(self._runtime_of, held, only_missing=self._measured % ISOLATION_EVERY != 0)
        self._measured += 1
