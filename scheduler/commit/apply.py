"""Apply the bundles of one plan that still hold, and record the cycle."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from berth.db.lease import Held, fenced
from berth.db.races import is_lost_race
from scheduler import context
from scheduler.commit import ground as judging
from scheduler.commit.evict import evict
from scheduler.commit.places import place
from scheduler.commit.scene import NOWHERE, Meeting, Scene
from scheduler.engine.plan import Bundle, Plan
from scheduler.models import Cycle
from scheduler.observe import Seen
from scheduler.points import point
from scheduler.reports.usage.allocation_hours import recount

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    applied: list[Bundle] = field(default_factory=list)
    stale: list[tuple[Bundle, str]] = field(default_factory=list)
    evictions: int = 0

    def take_in(self, other: "Outcome") -> None:
        self.applied += other.applied
        self.stale += other.stale
        self.evictions += other.evictions


@dataclass(frozen=True, slots=True)
class View:
    """What every attempt at the same plan shares."""

    seen: Seen
    cycle: int | None
    meeting: Mapping[str, Meeting]


def commit(
    seen: Seen, plan: Plan, held: Held, record: Cycle, meeting: Mapping[str, Meeting] = NOWHERE
) -> Outcome:
    """One transaction, in which `held` leads to the end. A bundle that the database refuses is dropped.

    The cycle's row comes first: allocations and evictions name it. `meeting`: where the ranks of those who
    start will meet, by workload; who is not there agrees on a place before its first pod starts.
    """
    outcome = Outcome()
    if plan.bundles:
        with fenced(held):
            record.save(force_insert=True)
            context.in_cycle(record.pk)
            _apply(plan.bundles, View(seen, record.pk, meeting), outcome)
            point("commit.before_end")
        point("commit.done")
    return outcome


def _apply(bundles: Sequence[Bundle], view: View, outcome: Outcome) -> None:
    """All of them; where that fails, each half by itself, until the one that cannot be is found."""
    attempt = Outcome()
    try:
        with transaction.atomic():
            _write(bundles, view, attempt)
    except (DatabaseError, InterfaceError, KeyError, AssertionError) as error:
        if isinstance(error, OperationalError | InterfaceError) and not is_lost_race(error):
            raise
        if len(bundles) == 1:
            log.warning("bundle for %s dropped: %s", bundles[0].workload, error)
            outcome.stale.append((bundles[0], str(error).splitlines()[0] if str(error) else repr(error)))
            return
        middle = len(bundles) // 2
        _apply(bundles[:middle], view, outcome)
        _apply(bundles[middle:], view, outcome)
    else:
        outcome.take_in(attempt)


def _write(bundles: Sequence[Bundle], view: View, outcome: Outcome) -> None:
    seen = view.seen
    scene = Scene(seen, judging.locked(seen, bundles), seen.at, view.cycle, view.meeting)
    point("commit.locked")
    for bundle in bundles:
        trouble = judging.outdated(bundle, seen, scene.ground)
        if trouble:
            outcome.stale.append((bundle, trouble))
            continue
        judging.take(bundle, seen, scene.ground)
        outcome.evictions += evict(bundle, scene)
        point("commit.evicted")
        place(bundle, scene)
        point("commit.placed")
        outcome.applied.append(bundle)
    scene.bound.insert()
    point("commit.bound")
    recount(workload.pk for workload in scene.ground.workloads.values())
