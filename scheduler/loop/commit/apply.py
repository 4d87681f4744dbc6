"""Apply the plan's bundles that are still valid, and record the cycle."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import HeldLease, fenced_transaction
from berth.db.loops.races import is_lost_race
from berth.db.writes.bulk_rows import insert_rows
from scheduler.engine.plan import Bundle, Plan
from scheduler.loop import log_context
from scheduler.loop.commit.bind import NewRows
from scheduler.loop.commit.context import NO_RENDEZVOUS, CommitContext, Rendezvous
from scheduler.loop.commit.evict import evict
from scheduler.loop.commit.locked_rows import bundle_conflict, count_allocations, lock_rows
from scheduler.loop.commit.placements import place_or_reserve
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Cycle
from scheduler.reports.usage.allocation_hours import update_gpu_totals

log = logging.getLogger(__name__)

REJECTIONS = (DatabaseError, InterfaceError, KeyError, AssertionError)


@dataclass(slots=True)
class CommitOutcome:
    """Result of a commit: the applied bundles, and the stale bundles with the reason for each."""

    applied: list[Bundle] = field(default_factory=list)
    stale: list[tuple[Bundle, str]] = field(default_factory=list)
    evictions: int = 0
    affects_arrays: bool = False  # whether a bundle changed an array task

    def add(self, other: "CommitOutcome") -> None:
        self.applied += other.applied
        self.stale += other.stale
        self.evictions += other.evictions
        self.affects_arrays |= other.affects_arrays


@dataclass(frozen=True, slots=True)
class CommitInput:
    """Input that is the same for every attempt to apply a plan."""

    view: ClusterView
    cycle: int | None
    rendezvous: Mapping[str, Rendezvous]


def commit(
    view: ClusterView,
    plan: Plan,
    held_lease: HeldLease,
    record: Cycle,
    rendezvous: Mapping[str, Rendezvous] = NO_RENDEZVOUS,
) -> CommitOutcome:
    """Apply the plan in one transaction, and return the outcome of each bundle.

    `rendezvous` maps each workload that starts to its rendezvous address. Raises LeadershipLost.
    """
    outcome = CommitOutcome()
    if plan.bundles:
        try:
            with _cycle_transaction(held_lease, record):
                _write_bundles(plan.bundles, CommitInput(view, record.pk, rendezvous), outcome)
        except REJECTIONS as error:
            _raise_if_unavailable(error)
            outcome = CommitOutcome()
            with _cycle_transaction(held_lease, record):
                _apply_bundles(plan.bundles, CommitInput(view, record.pk, rendezvous), outcome)
        crash_point("commit.done")
    return outcome


@contextmanager
def _cycle_transaction(held_lease: HeldLease, record: Cycle) -> Iterator[None]:
    with fenced_transaction(held_lease):
        record.pk = None
        # Events and evictions refer to the cycle, so its row comes first.
        insert_rows([record])
        log_context.bind_cycle(record.pk)
        yield
        crash_point("commit.before_end")


def _raise_if_unavailable(error: Exception) -> None:
    """Re-raise the error if the database is unavailable, because another attempt would also fail."""
    if isinstance(error, OperationalError | InterfaceError) and not is_lost_race(error):
        raise error


def _apply_bundles(bundles: Sequence[Bundle], commit_input: CommitInput, outcome: CommitOutcome) -> None:
    """Apply all bundles. If the database rejects them, bisect to isolate the offending bundle."""
    attempt = CommitOutcome()
    try:
        with transaction.atomic():
            _write_bundles(bundles, commit_input, attempt)
    except REJECTIONS as error:
        _raise_if_unavailable(error)
        if len(bundles) == 1:
            log.warning("bundle for %s dropped: %s", bundles[0].workload, error)
            outcome.stale.append((bundles[0], str(error).splitlines()[0] if str(error) else repr(error)))
            return
        middle = len(bundles) // 2
        _apply_bundles(bundles[:middle], commit_input, outcome)
        _apply_bundles(bundles[middle:], commit_input, outcome)
    else:
        outcome.add(attempt)


def _write_bundles(bundles: Sequence[Bundle], commit_input: CommitInput, outcome: CommitOutcome) -> None:
    view = commit_input.view
    context = CommitContext(
        view,
        lock_rows(view, bundles),
        view.at,
        commit_input.cycle,
        commit_input.rendezvous,
        NewRows(view.at),
    )
    crash_point("commit.locked")
    for bundle in bundles:
        conflict = bundle_conflict(bundle, view, context.locked)
        if conflict:
            outcome.stale.append((bundle, conflict))
            continue
        count_allocations(bundle, view, context.locked)
        outcome.evictions += evict(bundle, context)
        crash_point("commit.evicted")
        place_or_reserve(bundle, context)
        crash_point("commit.placed")
        outcome.applied.append(bundle)
    context.new_rows.write()
    outcome.affects_arrays = any(row.array_id is not None for row in context.locked.workloads.values())
    crash_point("commit.bound")
    specs = {name: view.workloads[name].spec for name in context.locked.workloads}
    update_gpu_totals(row.pk for name, row in context.locked.workloads.items() if specs[name].may_use_gpus)
