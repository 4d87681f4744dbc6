"""The leader loop: acquire the lease, tick, hand over on exit.

A standby asks again whenever the lease could have run out. Between two ticks the process sleeps; a
submission, a pod that changed its state, or a signal wakes it within milliseconds.
"""

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from berth.core.clock import Clock
from berth.db import lease
from berth.db.lease import Held, LeadershipLost
from berth.db.wake import Waiter, Woken
from pools.runtimes.base import Runtime
from scheduler.loop import POD, Loop, Reconcile
from scheduler.post import Post, Runtimes

log = logging.getLogger(__name__)

NAME = "scheduler"
LEASE_SECONDS = 10.0
STANDBY_SECONDS = 1.0
BUSY_SECONDS, IDLE_SECONDS = 2.0, 5.0
QUIET_SECONDS = 0.05  # after an act, for what it set going to call again before the slower part begins
SETTLE_SECONDS = 1.0  # the slower part is never put off for longer
QUIET = "quiet"
BURST_SECONDS = 0.005  # so that submissions that come together are decided together
PAUSE_FIRST, PAUSE_LONGEST = 0.1, 2.0  # while the database is away


@dataclass(slots=True)
class Scheduler:
    """One process. `runtime_of` and `reconcile` are its machines, `runtimes` those whose pods may wake it."""

    clock: Clock
    runtime_of: Runtimes
    reconcile: Reconcile
    runtimes: Mapping[str, Runtime]
    holder: str = field(default_factory=lease.this_process)
    lease_seconds: float = LEASE_SECONDS
    loop: Loop | None = None
    _renewed: float = 0.0
    _pause: float = PAUSE_FIRST
    _told_to_end: bool = False
    _settled: float = 0.0
    _busy: bool = False
    _short: bool = False
    _bell: int = field(default_factory=lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def end(self) -> None:
        """May be called by a signal handler: the present tick ends, then the lead is released."""
        self._told_to_end = True
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        trigger = "start"
        with contextlib.ExitStack() as stack:
            waiter: Waiter | None = None
            while not self._told_to_end:
                if waiter is None:
                    waiter = self._listening(stack)
                seconds = self._guarded(trigger)
                trigger = self._sleep(waiter, seconds)
            self._release()

    def step(self, trigger: str) -> float:
        """Act, if this process leads, and settle once it is quiet. Returns for how long to sleep."""
        if self.loop is None and not self._take_the_lead():
            return STANDBY_SECONDS
        assert self.loop is not None
        if not self._leads():
            raise LeadershipLost(f"{self.holder} could not renew its lease")
        if trigger != QUIET:
            self._busy = self.loop.act(trigger)
            if self._busy and time.monotonic() - self._settled < SETTLE_SECONDS:
                return QUIET_SECONDS
        busy = self.loop.settle() or self._busy
        self._settled, self._busy = time.monotonic(), False
        return BUSY_SECONDS if busy else IDLE_SECONDS

    def _guarded(self, trigger: str) -> float:
        try:
            seconds = self.step(trigger)
            self._pause, self._short = PAUSE_FIRST, seconds == QUIET_SECONDS
            return seconds
        except LeadershipLost as lost:
            log.warning("no longer leading: %s", lost)
            self.loop = None
            return STANDBY_SECONDS
        except (OperationalError, InterfaceError) as error:
            log.warning("the database is away, trying again in %.1f s: %s", self._pause, error)
            connection.close()
            pause, self._pause = self._pause, min(PAUSE_LONGEST, 2 * self._pause)
            return pause
        except Exception:
            log.exception("a tick failed")
            return BUSY_SECONDS

    def _take_the_lead(self) -> bool:
        before = time.monotonic()
        held = lease.acquire(NAME, self.holder, self.lease_seconds)
        if held is None:
            return False
        log.info("leading in epoch %d", held.epoch)
        self._renewed = before
        post = Post(held=held, runtimes=self.runtime_of, leads=self._leads)
        self.loop = Loop(post=post, clock=self.clock, reconcile=self.reconcile)
        return True

    def _leads(self) -> bool:
        """Whether nobody else can lead yet; renews the lease once a third of it is over."""
        now = time.monotonic()
        if now - self._renewed < self.lease_seconds / 3:
            return True
        held = self._held()
        if held is not None and lease.renew(held, self.lease_seconds):
            self._renewed = now
            return True
        return False

    def _held(self) -> Held | None:
        return self.loop.post.held if self.loop else None

    def _listening(self, stack: contextlib.ExitStack) -> Waiter | None:
        files = [self._bell, *(fd for runtime in self.runtimes.values() for fd in runtime.wake_fds())]
        try:
            return stack.enter_context(Waiter(NAME, files))
        except (DatabaseError, OSError) as error:
            log.warning("not listening yet: %s", error)
            return None

    def _sleep(self, waiter: Waiter | None, seconds: float) -> str:
        """Returns what ended it."""
        nothing = QUIET if self._short else "tick"
        self._short = False
        if waiter is None:
            time.sleep(min(seconds, PAUSE_LONGEST))
            return nothing
        seconds = min(seconds, self.lease_seconds / 3) if self.loop else seconds
        woken = waiter.wait(seconds)
        if woken.reasons and not self._told_to_end:
            time.sleep(BURST_SECONDS)
            more = waiter.wait(0)
            woken = Woken(woken.reasons | more.reasons, woken.ready | more.ready)
        for runtime in self.runtimes.values():
            if woken.ready.intersection(runtime.wake_fds()):
                runtime.drain_wakes()
        if woken.reasons:
            return " ".join(("wake", *sorted(filter(None, woken.reasons))))
        return POD if woken.ready else nothing

    def _release(self) -> None:
        held = self._held()
        if held is not None:
            with contextlib.suppress(DatabaseError, InterfaceError):
                lease.release(held)
        self.loop = None
