"""Main loop of processes that share one task.

The leader holds a lease, which all other processes try to acquire every second. The leader sleeps until the
next round is due, or until a notification, a file or `end` wakes it.
"""

import contextlib
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from berth.db.loops import lease
from berth.db.loops.lease import HeldLease, LeadershipLost
from berth.db.loops.wake import Waiter, WakeResult

log = logging.getLogger(__name__)

STANDBY_SECONDS = 1.0
FAILURE_PAUSE_SECONDS = 2.0  # pause after a round that raised an error
PAUSE_MIN, PAUSE_MAX = 0.1, 2.0  # minimum and maximum pause while the database is unavailable
TIMEOUT = "tick"  # trigger of rounds that start without a wake-up


@dataclass(slots=True, kw_only=True)
class LeaderLoop(ABC):
    """Base class for leader loops. Subclasses define the lease name and one round of work."""

    name: ClassVar[str]

    lease_seconds: float
    holder: str = field(default_factory=lease.holder_name)
    held: HeldLease | None = None
    _renewed: float = 0.0
    _pause: float = PAUSE_MIN
    _ending: bool = False
    _bell: int = field(default_factory=lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    @abstractmethod
    def run_round(self, trigger: str) -> float:
        """Perform one round as the leader. Return the seconds until the next round is due."""

    def on_leadership_gained(self, held: HeldLease) -> None:  # noqa: B027 - an optional hook
        """Prepare this process to lead."""

    def on_leadership_lost(self) -> None:  # noqa: B027 - an optional hook
        """Discard all state that depends on leadership."""

    def wake_descriptors(self) -> Collection[int]:
        """Return file descriptors that wake the loop when they become readable."""
        return ()

    def trigger(self, waiter: Waiter, woken: WakeResult) -> str:
        """Return the trigger of the next round: the event that ended the sleep."""
        return TIMEOUT if not woken.reasons else " ".join(("wake", *sorted(filter(None, woken.reasons))))

    def end(self) -> None:
        """Finish the current round, then release the lease. Safe to call from a signal handler."""
        self._ending = True
        os.eventfd_write(self._bell, 1)

    def run(self) -> None:
        """Do the work while this process is the leader, and stand by otherwise. Stop when `end` is called."""
        trigger = "start"
        with contextlib.ExitStack() as stack:
            waiter: Waiter | None = None
            while not self._ending:
                waiter = waiter or self._listen(stack)
                seconds = self._step_safely(trigger)
                trigger = self._sleep(waiter, seconds)
        self._release()

    def step(self, trigger: str) -> float:
        """Perform one round if this process leads. Return the seconds to sleep. Raises LeadershipLost."""
        if self.held is None and not self._acquire():
            return STANDBY_SECONDS
        if not self.keep_lease():
            raise LeadershipLost(f"{self.holder} could not renew its lease")
        return self.run_round(trigger)

    def keep_lease(self) -> bool:
        """Renew the lease if a third of its duration has passed. Return whether this process is still the
        leader.
        """
        now = time.monotonic()
        if now - self._renewed < self.lease_seconds / 3:
            return True
        if self.held is not None and lease.renew(self.held, self.lease_seconds):
            self._renewed = now
            return True
        return False

    def _acquire(self) -> bool:
        before = time.monotonic()
        held = lease.acquire(self.name, self.holder, self.lease_seconds)
        if held is None:
            return False
        log.info("became the leader of %s in epoch %d", self.name, held.epoch)
        self.held, self._renewed = held, before
        self.on_leadership_gained(held)
        return True

    def _step_safely(self, trigger: str) -> float:
        try:
            seconds = self.step(trigger)
            self._pause = PAUSE_MIN
            return seconds
        except LeadershipLost as error:
            log.warning("lost leadership of %s: %s", self.name, error)
            self._drop_leadership()
            return STANDBY_SECONDS
        except (OperationalError, InterfaceError) as error:
            log.warning("the database is unavailable, trying again in %.1f s: %s", self._pause, error)
            connection.close()
            pause, self._pause = self._pause, min(PAUSE_MAX, 2 * self._pause)
            return pause
        except Exception:
            log.exception("a round of the %s loop failed", self.name)
            return FAILURE_PAUSE_SECONDS

    def _listen(self, stack: contextlib.ExitStack) -> Waiter | None:
        try:
            return stack.enter_context(Waiter(self.name, [self._bell, *self.wake_descriptors()]))
        except (DatabaseError, OSError) as error:
            log.warning("cannot listen for %s yet: %s", self.name, error)
            return None

    def _sleep(self, waiter: Waiter | None, seconds: float) -> str:
        if self.held is not None:
            seconds = min(seconds, self.lease_seconds / 3)
        if waiter is None:
            time.sleep(min(seconds, PAUSE_MAX))
            return TIMEOUT
        woken = waiter.wait(seconds)
        return TIMEOUT if self._ending else self.trigger(waiter, woken)

    def _drop_leadership(self) -> None:
        self.held = None
        self.on_leadership_lost()

    def _release(self) -> None:
        if self.held is not None:
            with contextlib.suppress(DatabaseError, InterfaceError):
                lease.release(self.held)
        self._drop_leadership()
