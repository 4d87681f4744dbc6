"""Scheduler process, which runs ticks while it is the leader.

A submission, a pod state change or a signal wakes the process within milliseconds. The slow last step of a
tick waits for a burst of changes to end, but for at most one second.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from berth.core.clock import Clock
from berth.db.leader import TIMEOUT, LeaderLoop
from berth.db.lease import HeldLease
from berth.db.wake import Waiter, WakeResult
from pools.runtimes.base import Runtime
from scheduler.loop.context import Runtimes, SchedulerContext
from scheduler.loop.tick import POD_TRIGGER, Loop, ReconcilePool

NAME = "scheduler"
LEASE_SECONDS = 10.0
BUSY_SECONDS, IDLE_SECONDS = 2.0, 5.0
QUIET_SECONDS = 0.05  # a deferred reconcile starts after this long without a wake-up
DEFER_SECONDS = 1.0  # longest time by which a reconcile is deferred
BURST_SECONDS = 0.005  # delay before a cycle, so that one cycle handles submissions that arrive together


@dataclass(slots=True, kw_only=True)
class Scheduler(LeaderLoop):
    """A scheduler process. `runtime_for` returns the runtime of a pool; pods in `runtimes` can wake it."""

    name: ClassVar[str] = NAME

    clock: Clock
    runtime_for: Runtimes
    reconcile_pool: ReconcilePool
    runtimes: Mapping[str, Runtime]
    lease_seconds: float = LEASE_SECONDS
    loop: Loop | None = None
    _reconciled_at: float = 0.0
    _changed: bool = False
    _is_deferred: bool = False

    def on_leadership_gained(self, held_lease: HeldLease) -> None:
        context = SchedulerContext(held_lease=held_lease, runtimes=self.runtime_for, leads=self.leads)
        self.loop = Loop(context=context, clock=self.clock, reconcile_pool=self.reconcile_pool)

    def on_leadership_lost(self) -> None:
        self.loop = None

    def work(self, trigger: str) -> float:
        """Run a tick, then reconcile now or after a burst. Return the seconds until the next round."""
        assert self.loop is not None
        if not (self._is_deferred and trigger == TIMEOUT):
            self._changed |= self.loop.tick(trigger, reconcile=False)
            self._is_deferred = self._changed and time.monotonic() - self._reconciled_at < DEFER_SECONDS
            if self._is_deferred:
                return QUIET_SECONDS
        changed = self.loop.reconcile() or self._changed
        self._reconciled_at, self._changed, self._is_deferred = time.monotonic(), False, False
        return BUSY_SECONDS if changed else IDLE_SECONDS

    def wake_files(self) -> Collection[int]:
        return [fd for runtime in self.runtimes.values() for fd in runtime.wake_fds()]

    def trigger(self, waiter: Waiter, woken: WakeResult) -> str:
        if woken.reasons:
            time.sleep(BURST_SECONDS)
            more = waiter.wait(0)
            woken = WakeResult(woken.reasons | more.reasons, woken.ready | more.ready)
        for runtime in self.runtimes.values():
            if woken.ready.intersection(runtime.wake_fds()):
                runtime.drain_wakes()
        if woken.ready and not woken.reasons:
            return POD_TRIGGER
        return super(Scheduler, self).trigger(waiter, woken)
