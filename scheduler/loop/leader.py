"""Scheduler process, which runs ticks while it is the leader.

A submission, a pod state change or a signal wakes it immediately. Slow work runs in small steps between
ticks.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from django.db import connection

from berth.core.clock import Clock
from berth.core.garbage import collect_recent_garbage
from berth.db.loops.leader import TIMEOUT, LeaderLoop
from berth.db.loops.lease import HeldLease
from berth.db.loops.wake import Waiter, WakeResult
from pools.runtimes.base import Runtime
from scheduler.loop.context import Runtimes, SchedulerContext
from scheduler.loop.tick import POD_TRIGGER, Loop, ReconcilePool
from scheduler.registries import DigestResolver, HttpResolver

NAME = "scheduler"
LEASE_SECONDS = 10.0
BUSY_SECONDS, IDLE_SECONDS = 2.0, 5.0
EMPTY_SECONDS = 15.0  # time between two ticks while no workload is live
QUIET_SECONDS = 0.05  # a deferred reconcile pass starts after this many seconds without a wake-up
DEFER_SECONDS = 1.0  # maximum delay of a reconcile pass after the first change
# Delay before the first retry of a tick with unfinished work. Each further retry doubles the delay.
RETRY_SECONDS = 0.05
MAX_DOUBLINGS = 10
TICK_PAUSE = 0.005  # minimum time between two ticks, so that one tick handles a burst of changes


@dataclass(slots=True, kw_only=True)
class Scheduler(LeaderLoop):
    """Scheduler process.

    `runtime_for` returns the runtime of a pool. Pods of the runtimes in `runtimes` can wake the process.
    """

    name: ClassVar[str] = NAME

    clock: Clock
    runtime_for: Runtimes
    reconcile_pool: ReconcilePool
    runtimes: Mapping[str, Runtime]
    images: DigestResolver = field(default_factory=HttpResolver)
    lease_seconds: float = LEASE_SECONDS
    loop: Loop | None = None
    _tick_at: float = 0.0  # monotonic time at which the next tick is due without a wake-up
    _retries: int = 0  # consecutive ticks that left work undone
    _ticked_at: float = 0.0  # monotonic time at which the last tick ended
    _changed_at: float | None = None  # time of the first change since the latest reconcile pass began
    _pass_changed: bool = False  # True if anything changed just before or during the current pass
    _must_reconcile: bool = False
    _reconciling: Iterator[bool] | None = None
    _cleaning: Iterator[bool] | None = None
    _connection: object = None  # database connection on which the loop last read its rows

    def on_leadership_gained(self, held_lease: HeldLease) -> None:
        self._start_loop(held_lease)
        self._tick_at = 0.0

    def _start_loop(self, held_lease: HeldLease) -> None:
        context = SchedulerContext(
            held_lease=held_lease, runtimes=self.runtime_for, leads=self.keep_lease, images=self.images
        )
        self.loop = Loop(context=context, clock=self.clock, reconcile_pool=self.reconcile_pool)
        self._reconciling = self._cleaning = None
        self._connection = connection.connection

    def on_leadership_lost(self) -> None:
        self.loop = self._reconciling = self._cleaning = None

    def run_round(self, trigger: str) -> float:
        """Run a tick if one is due, and one step of the slow work.

        Return the seconds until the next round.
        """
        assert self.held is not None
        connection.ensure_connection()
        if connection.connection is not self._connection:
            # The database may have crashed and lost transactions that the caches still reflect.
            self._start_loop(self.held)
        assert self.loop is not None
        if trigger != TIMEOUT or time.monotonic() >= self._tick_at:
            self._tick(self.loop, trigger)
            if self._changed_at is not None and time.monotonic() - self._changed_at < DEFER_SECONDS:
                return min(QUIET_SECONDS, max(0.0, self._tick_at - time.monotonic()))
        if self._must_reconcile or self._reconciling:
            self._reconcile_step(self.loop)
        elif self._cleaning and self.loop.run_step(self._cleaning) is None:
            self._cleaning = None
        if self._reconciling or self._cleaning:
            return 0.0
        return QUIET_SECONDS if self._must_reconcile else max(0.0, self._tick_at - time.monotonic())

    def _tick(self, loop: Loop, trigger: str) -> None:
        if trigger == POD_TRIGGER and (self._retries or loop.has_more):
            trigger = TIMEOUT  # a tick triggered by pod reports would not repeat the decision
        self._tick_at = 0.0  # if this tick raises an error, the next tick is due at once
        changed = loop.tick(trigger, reconcile=False)
        collect_recent_garbage()
        self._ticked_at = time.monotonic()
        if changed and self._changed_at is None:
            self._changed_at = self._ticked_at
        self._must_reconcile = True
        self._retries = min(self._retries + 1, MAX_DOUBLINGS) if loop.must_retry else 0
        self._tick_at = self._ticked_at
        if not loop.has_more:
            self._tick_at += self._tick_pause(self._changed_at is not None)

    def _tick_pause(self, changed: bool) -> float:
        """Return the seconds until the next tick if the process is not woken earlier."""
        assert self.loop is not None
        idle_seconds = EMPTY_SECONDS if self.loop.is_empty else IDLE_SECONDS
        seconds = BUSY_SECONDS if changed else idle_seconds
        return min(seconds, RETRY_SECONDS * 2.0 ** (self._retries - 1)) if self._retries else seconds

    def _reconcile_step(self, loop: Loop) -> None:
        if not self._reconciling:
            self._reconciling, self._pass_changed = loop.reconcile_steps(), self._changed_at is not None
            self._must_reconcile, self._changed_at = False, None
        steps, self._reconciling = self._reconciling, None  # the pass ends if a step raises an error
        step_changed = loop.run_step(steps)
        if step_changed is not None:
            self._reconciling, self._pass_changed = steps, self._pass_changed or step_changed
            return
        self._tick_at = min(self._tick_at, time.monotonic() + self._tick_pause(self._pass_changed))
        self._cleaning = self._cleaning or loop.clean_up_steps()

    def wake_descriptors(self) -> Collection[int]:
        return [fd for source in self._wake_sources() for fd in source.wake_fds()]

    def _wake_sources(self) -> list[Runtime | DigestResolver]:
        return [*self.runtimes.values(), self.images]

    def trigger(self, waiter: Waiter, woken: WakeResult) -> str:
        pause = self._ticked_at + TICK_PAUSE - time.monotonic()
        if woken.reasons and pause > 0:
            time.sleep(pause)
            more = waiter.wait(0)
            woken = WakeResult(woken.reasons | more.reasons, woken.ready | more.ready)
        for source in self._wake_sources():
            if woken.ready.intersection(source.wake_fds()):
                source.clear_wakeups()
        if woken.ready and not woken.reasons:
            return POD_TRIGGER
        return super(Scheduler, self).trigger(waiter, woken)
