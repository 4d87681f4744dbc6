"""Thread that measures utilization periodically. It runs in the leader process."""

from typing import ClassVar

from berth.db.loops.lease import HeldLease
from scheduler.reports.isolation import record_isolation
from scheduler.reports.leased_thread import LeasedThread
from scheduler.reports.utilization.readings import measure_running_pods
from scheduler.reports.utilization.storage import write_readings

# Number of measurements between two isolation queries. Nodes without a report are queried every time.
ISOLATION_EVERY = 20


class UtilizationWatcher(LeasedThread):
    """Thread that measures utilization. Its lease ensures that no second is counted twice."""

    lease_name: ClassVar[str] = "use"
    subject: ClassVar[str] = "the measurement of utilization"
    _measured = 0

    def run_job(self, held: HeldLease) -> None:
        write_readings(measure_running_pods(self._clock.now, self._runtime_of), held)
        record_isolation(self._runtime_of, held, only_missing=self._measured % ISOLATION_EVERY != 0)
        self._measured += 1
