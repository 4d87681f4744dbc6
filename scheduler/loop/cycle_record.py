"""Record each cycle: its timing, input, result and reasons."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import HeldLease, fenced_transaction
from berth.db.writes.bulk_rows import insert_rows, update_rows
from berth.db.writes.set_writes import write_with_bisection
from berth.server.tracing.spans import span
from scheduler.engine.explain.rejections import Rejections
from scheduler.engine.forecast import forecast_pending
from scheduler.engine.model import Node, Pool
from scheduler.engine.plan import Bundle, Evict, Plan, QueueReport
from scheduler.loop import log_context
from scheduler.loop.commit import CommitOutcome
from scheduler.loop.context import SchedulerContext
from scheduler.loop.engine_version import engine_version
from scheduler.loop.observe.view import ClusterView
from scheduler.loop.snapshot_codec import SnapshotEncoder
from scheduler.loop.snapshots import compress_in_parts
from scheduler.models import Cycle
from scheduler.reports.explanations.pool_readiness import with_pool_readiness
from scheduler.reports.explanations.scale_up import list_scale_up_first, mark_unknown_boot_times
from scheduler.reports.explanations.writer import ExplanationWriter
from scheduler.reports.queues.queue_statuses import settle_due_usage_ledgers, store_queue_statuses
from scheduler.reports.queues.queue_totals import totals_by_queue

log = logging.getLogger(__name__)

RECORD_EVERY = timedelta(seconds=60)  # interval at which cycles without changes are recorded
PART_SIZE = 2000  # number of workloads processed per step
FREE_SIZE = 1000  # up to this number of workloads, every cycle is explained and stored with its snapshot
# Pace in larger clusters: number of workloads stored or explained per second.
SNAPSHOTS_PER_SECOND, EXPLANATIONS_PER_SECOND = 1000, 2500

# Columns that are still unknown when the commit inserts the cycle's row. They are updated afterwards.
OUTCOME = ("commit_ms", "applied", "stale", "evictions", "plan", "notes")

IdleState = tuple[tuple[Pool, ...], tuple[Node, ...], tuple[QueueReport, ...]]


@dataclass(slots=True)
class RunInterval:
    """Minimum interval between runs of a task, which grows in proportion to the number of workloads."""

    per_second: int
    last: datetime | None = None

    def is_due_at(self, size: int, now: datetime) -> bool:
        """Return whether the task is due. It is always due for up to FREE_SIZE workloads."""
        interval = timedelta(seconds=size / self.per_second)
        return size <= FREE_SIZE or self.last is None or not self.last <= now < self.last + interval

    def is_due(self, size: int, now: datetime) -> bool:
        """Return whether the task is due. If so, begin the next interval."""
        due = self.is_due_at(size, now)
        if due:
            self.last = now
        return due


@dataclass(slots=True)
class CycleTimer:
    """Start time, trigger and step durations of a cycle."""

    at: datetime
    trigger: str
    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.milliseconds[step] = (time.perf_counter() - began) * 1000

    def record(self, view: ClusterView, plan: Plan, held_lease: HeldLease) -> Cycle:
        """Return an unsaved row for a cycle that has a plan."""
        return Cycle(
            at=self.at,
            epoch=held_lease.epoch,
            trigger=self.trigger[:40],
            observe_ms=self.milliseconds["observe"],
            decide_ms=self.milliseconds["decide"],
            nodes=len(view.snapshot.nodes),
            workloads=len(view.snapshot.workloads),
            pending=len(plan.rejections),
            bundles=len(plan.bundles),
            trials=plan.trials,
            engine=engine_version(),
        )


@dataclass(slots=True)
class CycleMemory:
    """In-memory state that is passed from one cycle to the next."""

    explanations: ExplanationWriter = field(default_factory=ExplanationWriter)
    encoder: SnapshotEncoder = field(default_factory=SnapshotEncoder)  # encoded parts of stored snapshots
    recorded_at: datetime | None = None
    snapshots: RunInterval = field(default_factory=lambda: RunInterval(SNAPSHOTS_PER_SECOND))
    explained: RunInterval = field(default_factory=lambda: RunInterval(EXPLANATIONS_PER_SECOND))
    notes: tuple[str, ...] = ()
    idle_state: IdleState | None = None  # state of the last cycle, if that cycle had no workloads


@dataclass(slots=True)
class CycleRun:
    """A committed cycle."""

    view: ClusterView
    plan: Plan
    outcome: CommitOutcome
    record: Cycle
    written: bool = False
    is_snapshot_due: bool = False  # True if `store_snapshot` still has to be called

    def span_attributes(self) -> dict[str, int]:
        """Return the cycle's trace span attributes."""
        return {
            "berth__workloads": self.record.workloads,
            "berth__nodes": self.record.nodes,
            "berth__pending": self.record.pending,
            "berth__bundles": self.record.bundles,
            "berth__evictions": self.outcome.evictions,
        }


def explain_pending_workloads(run: CycleRun, memory: CycleMemory) -> Iterator[bool]:
    """Explain the pending workloads if explanations are due. Yield True between parts of the work."""
    view, plan = run.view, run.plan
    if not memory.explained.is_due(run.record.pending, view.at):
        return
    rejections = plan.rejections
    if isinstance(rejections, Rejections):
        while rejections.expand(PART_SIZE):
            yield True
    plan, predicted = forecast_pending(view.snapshot, plan)
    rejections = with_pool_readiness(plan.rejections, view.below_threshold)
    if any(demand.nodes_wanted for demand in plan.demand):
        rejections = list_scale_up_first(rejections)
        predicted = mark_unknown_boot_times(predicted, rejections)
    yield from memory.explanations.select_changes(view, rejections, predicted)


def record_newest_cycle(
    run: CycleRun, context: SchedulerContext, memory: CycleMemory, notes: list[str]
) -> bool:
    """Record a cycle, and its pending reasons, shares and usage. Return whether rows changed."""
    with span("record cycle") as traced:
        key = run.record.pk
        try:
            changed = _record_if_due(run, context, memory, notes)
        except Exception:
            run.record.pk = key  # if this transaction inserted the row, the next attempt inserts it again
            raise
        run.written = True
        log_context.bind_cycle(run.record.pk, traced)
        return changed


def record_earlier_cycles(
    runs: Sequence[CycleRun], context: SchedulerContext, memory: CycleMemory, notes: list[str]
) -> bool:
    """Record cycles other than the newest in one transaction. Return whether rows changed."""
    changed: list[tuple[CycleRun, tuple[str, ...]]] = []
    recorded_at, recorded_notes = memory.recorded_at, memory.notes
    for run in runs:
        all_notes = (*run.plan.notes, *notes)
        if run.plan.bundles or all_notes != recorded_notes or _is_record_due(run, recorded_at):
            changed.append((run, all_notes))
            recorded_at, recorded_notes = run.view.at, all_notes
    keys = [run.record.pk for run, _ in changed]
    try:
        if changed:
            with span("record cycles") as traced:
                with fenced_transaction(context.held_lease, waits_for_disk=False):
                    rejected = write_with_bisection(changed, _save_outcomes)
                traced.set_attributes(berth__cycles=[run.record.pk for run, _ in changed if run.record.pk])
            for (run, _), reason in rejected:
                log.error("the cycle at %s could not be recorded: %s", run.view.at, reason)
    except Exception:
        for (run, _), key in zip(changed, keys, strict=True):
            run.record.pk = key  # if this transaction inserted the row, the next attempt inserts it again
        raise
    for run, all_notes in changed:
        _mark_recorded(run, memory, all_notes)
    memory.idle_state = None
    for run in runs:
        run.written = True
    return bool(changed)


def _is_record_due(run: CycleRun, recorded_at: datetime | None) -> bool:
    return recorded_at is None or run.view.at - recorded_at >= RECORD_EVERY


def _mark_recorded(run: CycleRun, memory: CycleMemory, notes: tuple[str, ...]) -> None:
    run.is_snapshot_due = memory.snapshots.is_due(len(run.view.snapshot.workloads), run.view.at)
    memory.recorded_at, memory.notes = run.view.at, notes


def _record_if_due(run: CycleRun, context: SchedulerContext, memory: CycleMemory, notes: list[str]) -> bool:
    view, plan, record = run.view, run.plan, run.record
    all_notes = (*plan.notes, *notes)
    due = _is_record_due(run, memory.recorded_at)
    idle_state = _idle_state(run)
    if not due and idle_state is not None and idle_state == memory.idle_state and all_notes == memory.notes:
        return False
    with fenced_transaction(context.held_lease, waits_for_disk=False):
        explained_count = memory.explanations.write_batch(view.at, record.pk)
        totals = totals_by_queue()
        store_queue_statuses(view, plan.queues, totals)
        settle_due_usage_ledgers(view.at, totals)
        changed = bool(plan.bundles or explained_count or all_notes != memory.notes)
        if changed or due:
            save_outcome(run, all_notes)
            _mark_recorded(run, memory, all_notes)
        crash_point("cycle.before_end")
    memory.idle_state = idle_state
    crash_point("cycle.done")
    return changed


def _idle_state(run: CycleRun) -> IdleState | None:
    """Return the values that are compared between idle cycles to detect a change.

    Return None if the cycle was not idle.
    """
    if run.view.workloads or run.plan.bundles:
        return None
    queues = tuple(replace(report, usage=(0.0, 0.0, 0.0)) for report in run.plan.queues)
    return run.view.snapshot.pools, run.view.snapshot.nodes, queues


def record_failure(
    timer: CycleTimer, held_lease: HeldLease, memory: CycleMemory, notes: Sequence[str]
) -> bool:
    """Record a failed cycle, unless it has the same notes as the previous failure.

    Return whether a row was written.
    """
    if tuple(notes) == memory.notes:
        return False
    with fenced_transaction(held_lease, waits_for_disk=False):
        Cycle.objects.create(
            at=timer.at, epoch=held_lease.epoch, trigger=timer.trigger[:40], notes=list(notes[:100])
        )
    memory.recorded_at, memory.notes = timer.at, tuple(notes)
    return True


def save_outcome(run: CycleRun, notes: Sequence[str]) -> None:
    """Save the cycle's row and outcome in the caller's transaction."""
    _save_outcomes([(run, notes)])
    log_context.bind_cycle(run.record.pk)


def _save_outcomes(runs: Sequence[tuple[CycleRun, Sequence[str]]]) -> None:
    records = [_fill_record(run, notes) for run, notes in runs]
    update_rows([record for record in records if record.pk is not None], OUTCOME)
    insert_rows([record for record in records if record.pk is None])


def _fill_record(run: CycleRun, notes: Sequence[str]) -> Cycle:
    record, outcome = run.record, run.outcome
    record.applied, record.stale = len(outcome.applied), len(outcome.stale)
    record.evictions = outcome.evictions
    record.plan = {
        "bundles": [_bundle_document(bundle) for bundle in outcome.applied[:500]],
        "stale": [{**_bundle_document(bundle), "why": why} for bundle, why in outcome.stale[:500]],
    }
    record.notes = list(notes[:100])
    return record


def write_reason_batch(run: CycleRun, context: SchedulerContext, memory: CycleMemory) -> bool:
    """Write a batch of the pending reasons that `record_newest_cycle` did not write.

    Return whether rows changed.
    """
    with fenced_transaction(context.held_lease, waits_for_disk=False):
        return bool(memory.explanations.write_batch(run.view.at, run.record.pk))


def store_snapshot(run: CycleRun, context: SchedulerContext, memory: CycleMemory) -> Iterator[bool]:
    """Store a recorded cycle's snapshot. Yield True between parts of the work."""
    run.is_snapshot_due = False
    snapshot = yield from compress_in_parts(run.view.snapshot, run.plan, memory.encoder, PART_SIZE)
    if snapshot is not None:
        with fenced_transaction(context.held_lease, waits_for_disk=False):
            Cycle.objects.filter(pk=run.record.pk).update(snapshot=snapshot)


def _bundle_document(bundle: Bundle) -> dict[str, Any]:
    return {
        "kind": str(bundle.kind),
        "workload": bundle.workload,
        "pool": bundle.pool,
        "message": bundle.message,
        "steps": [
            {
                "do": "stop" if isinstance(step, Evict) else "reserve" if step.reserved else "place",
                "workload": step.workload,
                "role": step.role,
                "index": step.index,
                "node": step.node,
                "devices": list(step.devices),
            }
            for step in bundle.steps[:200]
        ],
    }
