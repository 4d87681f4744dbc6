"""One turn of the scheduler: observe, decide, commit, dispatch, reconcile.

One process leads; the others stand by and take over when its lease runs out. Every step works from rows
and does no harm when done again. Steps after commit run in every tick, whether anything was decided or
not: they heal what a crash left half done.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import InterfaceError, OperationalError

from berth.core.clock import Clock
from berth.db.lease import Held, LeadershipLost, fenced
from berth.db.races import is_lost_race
from berth.server.tracing.spans import span
from pools.engine.victims import Work
from pools.lost_work import work_to_lose
from pools.models import NodePool
from scheduler import context
from scheduler.checkpoints import EVERY, note_checkpoints
from scheduler.commit.promises import drop_dead_promises
from scheduler.cycles import Memory, Ran, run_cycle, write_down, write_failure
from scheduler.demand import tell_empty_drains, tell_pools
from scheduler.dispatch import TakenIn, start_pods, stop_pods, take_in
from scheduler.dispatch.drains import evict_from_overdue_drains
from scheduler.dispatch.leftovers import clear_logs, hand_over_workspaces
from scheduler.dispatch.limits import Quiet, end_overdue
from scheduler.dispatch.sweep import sweep
from scheduler.post import Post
from scheduler.releases import Releases
from scheduler.schedules import keep_schedules

log = logging.getLogger(__name__)

Did = TypeVar("Did")
Reconcile = Callable[[NodePool, datetime, Held, Mapping[int, Work]], bool]  # True: it did something
POD = "pod"  # the trigger when nothing but pods called
SWEEP_EVERY = timedelta(seconds=60)


@dataclass(slots=True)
class Loop:
    """One scheduler that leads. `act` is what somebody waits for, `settle` what can wait a moment."""

    post: Post
    clock: Clock
    reconcile: Reconcile
    memory: Memory = field(default_factory=Memory)
    quiet: Quiet = field(default_factory=Quiet)
    releases: Releases = field(default_factory=Releases)
    swept_at: datetime | None = None
    looked_at: datetime | None = None  # after checkpoints
    _ran: list[Ran] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)

    def tick(self, trigger: str = "tick") -> bool:
        """True when something happened, so that it is worth to look again soon."""
        did = self.act(trigger)
        return self.settle() or did

    def act(self, trigger: str = "tick") -> bool:
        """Take in what happened, decide, and start and stop what was decided."""
        context.begin()
        with span("scheduler act", berth__trigger=trigger[:40], berth__epoch=self.post.held.epoch) as told:
            did = self._act(trigger)
            told.tell(berth__did_something=did)
            return did

    def _act(self, trigger: str) -> bool:
        now, notes = self.clock.now(), self._notes
        taken = self._try("taking in", lambda: take_in(now, self.post), notes) or TakenIn()
        notes += taken.notes
        self.post.handed.unsay_starts(taken.unknown)
        moved = bool(self._try("promises", lambda: drop_dead_promises(now, self.post), notes))
        decided = False
        if trigger != POD or taken.ended or moved:  # that pods run now frees nothing
            decided = self._cycle(now, trigger, notes)
        notes += start_pods(now, self.post)
        notes += stop_pods(now, self.post)
        return bool(taken.changed or moved or decided)

    def settle(self) -> bool:
        """Limits of time, records, the pools' size, and what has to be cleared away."""
        with span("scheduler settle", berth__epoch=self.post.held.epoch):
            return self._settle()

    def _settle(self) -> bool:
        now, notes = self.clock.now(), self._notes
        ended = self._try("limits", lambda: end_overdue(now, self.post, self.quiet), notes)
        if self.looked_at is None or now - self.looked_at >= EVERY:
            self.looked_at = now
            self._try("checkpoints", lambda: note_checkpoints(self.post), notes)
        drained = self._try("drains", lambda: evict_from_overdue_drains(now, self.post), notes)
        told = self._write_down(notes)
        self._try("drained nodes", self._fenced(lambda: tell_empty_drains(now)), notes)
        given = self._give_nodes_back(now, notes)
        grown = self._reconcile(now, notes)
        self._housekeeping(now)
        self._ran, self._notes = self._ran[-1:], []
        return bool(ended or drained or told or given or grown)

    def _cycle(self, now: datetime, trigger: str, notes: list[str]) -> bool:
        before = len(notes)
        ran = self._try("the cycle", lambda: run_cycle(now, trigger, self.post), notes)
        if ran is not None:
            self._ran.append(ran)
        else:
            failed = notes[before:]
            self._try("records", lambda: write_failure(now, trigger, self.post, self.memory, failed), notes)
        return ran is not None and bool(ran.outcome.applied or ran.outcome.stale)

    def _write_down(self, notes: list[str]) -> bool:
        told = False
        for ran in self._ran:
            if not ran.written:
                told |= bool(self._try("records", self._writing(ran, notes), notes))
        return told

    def _writing(self, ran: Ran, notes: list[str]) -> Callable[[], bool]:
        return lambda: write_down(ran, self.post, self.memory, notes, newest=ran is self._ran[-1])

    def _give_nodes_back(self, now: datetime, notes: list[str]) -> bool:
        if not self._ran:
            return False
        newest = self._ran[-1]
        return bool(self._try("nodes", lambda: self.releases.give_back(newest, now, self.post), notes))

    def _reconcile(self, now: datetime, notes: list[str]) -> bool:
        if self._ran:
            newest = self._ran[-1]
            tell = self._fenced(lambda: tell_pools(newest.seen, newest.plan.demand))
            self._try("demand", tell, notes)
        lost = self._try("work to lose", lambda: work_to_lose(now), notes) or {}
        did = False
        for pool in NodePool.objects.order_by("name"):
            if not self.post.leads():
                break
            did |= bool(self._try(f"pool {pool.name}", self._reconciling(pool, now, lost), notes))
        return did

    def _reconciling(self, pool: NodePool, now: datetime, lost: Mapping[int, Work]) -> Callable[[], bool]:
        return lambda: self.reconcile(pool, now, self.post.held, lost)

    def _housekeeping(self, now: datetime) -> None:
        if self.swept_at is None or now - self.swept_at >= SWEEP_EVERY:
            self.swept_at = now
            notes: list[str] = []
            for note in self._try("sweep", lambda: sweep(now, self.post), notes) or ():
                log.warning(note)
            self._try("logs of the deleted", lambda: clear_logs(self.post), notes)
            self._try("workspaces of the deleted", lambda: hand_over_workspaces(now, self.post), notes)
            self._try("schedules", self._fenced(keep_schedules), notes)

    def _fenced(self, step: Callable[[], Did]) -> Callable[[], Did]:
        """For a step that knows of no lead: what it writes is written only while we have it."""

        def writing() -> Did:
            with fenced(self.post.held):
                return step()

        return writing

    def _try(self, what: str, step: Callable[[], Did], notes: list[str]) -> Did | None:
        """One broken row or machine stops its own step, not the loop."""
        try:
            return step()
        except LeadershipLost:
            raise
        except Exception as error:
            if isinstance(error, OperationalError | InterfaceError) and not is_lost_race(error):
                raise
            log.exception("%s failed", what)
            notes.append(f"{what} failed: {error!r}")
            return None
