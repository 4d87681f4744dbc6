"""Here the scheduler goes round: take in, decide, commit, start and stop, and let the pools grow or shrink.

One process leads; the others stand by and take over when its lease runs out. Every step works from rows
and does no harm when done again. Steps after commit run in every tick, whether anything was decided or
not: they heal what a crash left half done.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from berth.core.clock import Clock
from berth.db.lease import Held, LeadershipLost
from pools.models import NodePool
from scheduler.commit.promises import see_to_promises
from scheduler.cycles import Memory, Ran, run_cycle, write_down
from scheduler.demand import tell_empty_drains, tell_pools
from scheduler.dispatch import start_pods, stop_pods, take_in
from scheduler.dispatch.drains import evict_from_overdue_drains
from scheduler.dispatch.limits import Quiet, end_overdue
from scheduler.dispatch.sweep import sweep
from scheduler.post import Post
from scheduler.snapshots import drop_old

log = logging.getLogger(__name__)

Did = TypeVar("Did")
Reconcile = Callable[[NodePool, datetime, Held], bool]  # True: it did something
SWEEP_EVERY = timedelta(seconds=60)


@dataclass(slots=True)
class Loop:
    """One scheduler that leads. `tick` is all it does; who calls it decides how often."""

    post: Post
    clock: Clock
    reconcile: Reconcile
    memory: Memory = field(default_factory=Memory)
    quiet: Quiet = field(default_factory=Quiet)
    swept_at: datetime | None = None

    def tick(self, trigger: str = "tick") -> bool:
        """True when something happened, so that it is worth to look again soon."""
        now = self.clock.now()
        notes: list[str] = []
        taken = take_in(now, self.post)
        notes += taken.notes
        self.post.handed.unsay_starts(taken.unknown)
        ended = self._try("limits", lambda: end_overdue(now, self.post, self.quiet), notes)
        drained = self._try("drains", lambda: evict_from_overdue_drains(now, self.post), notes)
        promised = self._try("promises", lambda: see_to_promises(now, self.post.held, self.post.specs), notes)
        ran = self._cycle(now, trigger, notes)
        notes += start_pods(now, self.post)
        notes += stop_pods(now, self.post)
        told = self._write_down(ran, notes)
        self._try("drained nodes", lambda: tell_empty_drains(now), notes)
        grown = self._reconcile(now, ran, notes)
        self._housekeeping(now)
        moved = bool(promised and any(promised))
        return bool(taken.changed or ended or drained or moved or told or grown)

    def _cycle(self, now: datetime, trigger: str, notes: list[str]) -> Ran | None:
        try:
            return run_cycle(now, trigger, self.post)
        except (OperationalError, InterfaceError, LeadershipLost):
            raise
        except Exception as error:
            log.exception("the cycle failed")
            notes.append(f"The cycle failed: {error!r}")
            return None

    def _write_down(self, ran: Ran | None, notes: list[str]) -> bool:
        if ran is None:
            return False
        return bool(self._try("records", lambda: write_down(ran, self.post, self.memory, notes), notes))

    def _reconcile(self, now: datetime, ran: Ran | None, notes: list[str]) -> bool:
        if ran is not None:
            self._try("demand", lambda: tell_pools(ran.seen, ran.plan.demand), notes)
        did = False
        for pool in NodePool.objects.order_by("name"):
            if not self.post.leads():
                break
            did |= bool(self._try(f"pool {pool.name}", self._reconciling(pool, now), notes))
        return did

    def _reconciling(self, pool: NodePool, now: datetime) -> Callable[[], bool]:
        return lambda: self.reconcile(pool, now, self.post.held)

    def _housekeeping(self, now: datetime) -> None:
        if self.swept_at is None or now - self.swept_at >= SWEEP_EVERY:
            self.swept_at = now
            notes: list[str] = []
            for note in self._try("sweep", lambda: sweep(now, self.post), notes) or ():
                log.warning(note)
            self._try("old cycles", lambda: drop_old(now), notes)

    def _try(self, what: str, step: Callable[[], Did], notes: list[str]) -> Did | None:
        """One broken row or machine stops its own step, not the loop."""
        try:
            return step()
        except (OperationalError, InterfaceError, LeadershipLost):
            raise
        except Exception as error:
            log.exception("%s failed", what)
            notes.append(f"{what} failed: {error!r}")
            return None
