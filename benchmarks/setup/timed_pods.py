"""Provider and runtime for benchmarks. Nodes boot immediately, and each pod ends after a set time.

`BERTH_FAKE_POOLS` names this module. A pod runs for the number of seconds in its environment variable
SECONDS, or indefinitely. The end of a pod wakes the scheduler, like the end of a process.
"""

import heapq
import os
import threading
import time
from collections.abc import Collection
from datetime import timedelta

from berth.core.clock import Clock
from pools.runtimes.base import PodReport, PodSpec, PodState
from tests.fakes.provider import FakeProvider
from tests.fakes.runtime import FakeRuntime, Lifetime

FOREVER = 1e9


def provider() -> FakeProvider:
    return FakeProvider()


def runtime(clock: Clock) -> "TimedRuntime":
    return TimedRuntime(clock)


def lifetime(order: PodSpec) -> Lifetime:
    return Lifetime(float(order.env.get("SECONDS", FOREVER)))


class TimedRuntime(FakeRuntime):
    """In-memory runtime that wakes the scheduler when a pod ends."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, lifetime=lifetime)
        self._ends: list[float] = []  # heap of monotonic times
        self._changed = threading.Condition()
        self._reporting = False
        threading.Thread(target=self._wake_at_ends, daemon=True).start()

    def run(self, pod_id: str) -> None:
        super().run(pod_id)
        order = self._pods[pod_id].order
        with self._changed:
            heapq.heappush(self._ends, time.monotonic() + (lifetime(order).seconds if order else 0.0))
            self._changed.notify()

    def end_all(self, seconds: float) -> None:
        """End all running pods one after another, spread over `seconds`."""
        running = [pod for pod in self._pods.values() if pod.report.state is PodState.RUNNING]
        wall, monotonic = self.clock.now(), time.monotonic()
        with self._changed:
            for number, pod in enumerate(running, 1):
                after = seconds * number / len(running)
                pod.ends_at = wall + timedelta(seconds=after)
                heapq.heappush(self._ends, monotonic + after)
            self._changed.notify()

    def get_reports(self, pod_ids: Collection[str]) -> dict[str, PodReport]:
        self._reporting = True
        try:
            return super().get_reports(pod_ids)
        finally:
            self._reporting = False
            self.calls.clear()

    def _poke(self) -> None:
        """Wake the scheduler, unless it is reading reports and will see the change anyway."""
        if not self._reporting:
            super()._poke()

    def _wake_at_ends(self) -> None:
        while True:
            with self._changed:
                while not self._ends or self._ends[0] > time.monotonic():
                    self._changed.wait(min(60.0, self._ends[0] - time.monotonic()) if self._ends else None)
                while self._ends and self._ends[0] <= time.monotonic():
                    heapq.heappop(self._ends)
            os.eventfd_write(self._wake, 1)
