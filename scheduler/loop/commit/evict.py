"""Evict workloads: stop their pods and write an audit record."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from projects.models import Phase, PodState, Workload
from projects.services import announce, events
from scheduler.engine.backoff import eviction_backoff_seconds
from scheduler.engine.plan import Bundle, Evict, Kind, Place
from scheduler.engine.plan import Eviction as Decided
from scheduler.loop.commit.bind import ACTOR
from scheduler.loop.commit.context import CommitContext, add_phase_change
from scheduler.loop.commit.locked_rows import Key
from scheduler.reports.evictions.records import audit_record_numbers
from scheduler.reports.evictions.rows import eviction_row
from scheduler.reports.visibility import project_from_handle, workload_display_name

REASONS = {
    Kind.SHRINK: "Shrunk",
    Kind.CONSOLIDATE: "Consolidated",
    Kind.RECLAIM: "Reclaimed",
    Kind.PREEMPT: "Preempted",
    Kind.STALE_GANG: "StaleGang",
}
PREEMPTION_KINDS = (Kind.RECLAIM, Kind.PREEMPT)  # kinds that count as preemptions and cause a backoff


def evict(bundle: Bundle, context: CommitContext) -> int:
    """Apply a bundle's evictions. Return the number of evicted workloads."""
    stopping = {(s.workload, s.role, s.index): s for s in bundle.steps if isinstance(s, Evict)}
    moved = {step.workload for step in bundle.steps if isinstance(step, Place)}
    for decided in bundle.evictions:
        workload = context.locked.workloads[decided.workload]
        keys = [key for pod in decided.pods if (key := (decided.workload, *pod)) in stopping]
        steps = [stopping.pop(key) for key in keys]
        _write_audit_record(decided, bundle, workload, sum(s.milli * len(s.devices) for s in steps), context)
        message = _eviction_message(decided, context)
        _stop_pods(keys, REASONS[decided.kind], message, context)
        if decided.whole and workload.phase in (Phase.STARTING, Phase.RUNNING):
            requeue(workload, decided, context, is_moved=decided.workload in moved)
        else:
            kind = REASONS[decided.kind].lower()
            event = events.build(kind, workload, message, actor=ACTOR, data={"pods": len(steps)})
            context.new_rows.events.append(event)
            announce.workload_changed(workload)
    _stop_pods(stopping, REASONS.get(bundle.kind, "Stopped"), bundle.message, context)
    return len(bundle.evictions)


def _stop_pods(keys: Iterable[Key], reason: str, message: str, context: CommitContext) -> None:
    """Mark pods as stopping. If a replica has only a reservation, cancel all reservations of its workload."""
    live = {key: context.locked.live_pod_id(context.view, key) for key in keys}
    pods = [pod for pod in live.values() if pod is not None]
    for name in dict.fromkeys(key[0] for key, pod in live.items() if pod is None):
        workload = context.locked.workloads[name]
        context.new_rows.cancel_reservation(workload, reason, message, context.cycle)
    if pods:
        context.new_rows.stopped.setdefault(reason, []).extend(pods)
    for pk in pods:
        context.locked.pods[pk].state = PodState.STOPPING


def requeue(workload: Workload, decided: Decided, context: CommitContext, *, is_moved: bool) -> None:
    """Stop and requeue a workload.

    Reclaims and preemptions cause a backoff, except at the end of a fair-share turn.
    """
    columns: dict[str, Any] = {"backoff_until": None}  # a scale-up backoff does not delay a restart
    if decided.kind in PREEMPTION_KINDS and not is_moved:
        columns["preemptions"] = workload.preemptions + 1
        if decided.earns_backoff:
            ran = (context.now - (workload.started_at or context.now)).total_seconds()
            seconds = eviction_backoff_seconds(columns["preemptions"], ran)
            columns["backoff_until"] = context.now + timedelta(seconds=seconds)
    add_phase_change(
        workload,
        context,
        expected=[Phase.STARTING, Phase.RUNNING],
        to=Phase.STOPPING,
        next_phase=Phase.PENDING,
        reason=REASONS[decided.kind],
        message=_eviction_message(decided, context),
        **columns,
    )


def _eviction_message(decided: Decided, context: CommitContext) -> str:
    """Return a message for the victim's project.

    If the preemptor belongs to another project, only its size is revealed.
    """
    purpose = ""
    if decided.preemptor is not None:
        project, _, name = decided.preemptor.partition("/")
        preemptor = context.locked.workloads.get(decided.preemptor)
        own = project == project_from_handle(decided.workload)
        gpu_milli = preemptor.gpu_milli_min if preemptor else None
        purpose = f" for {workload_display_name(project, name, gpu_milli, is_visible=own)}"
    return f"{REASONS[decided.kind]}{purpose}: {decided.rule}"


def _write_audit_record(
    decided: Decided, bundle: Bundle, workload: Workload, gpu_milli: int, context: CommitContext
) -> None:
    preemptor = context.locked.workloads.get(decided.preemptor) if decided.preemptor else None
    pool = context.view.pools[bundle.pool]
    row = eviction_row(
        workload,
        pool.pk,
        pool.name,
        at=context.now,
        kind=str(decided.kind),
        rule=decided.rule,
        pods=decided.pods,
        preemptor=preemptor,
        cycle=context.cycle,
        numbers=audit_record_numbers(
            decided, workload.gpu_milli_min, preemptor.gpu_milli_min if preemptor else None
        ),
        entire_workload=decided.whole,
        gpu_milli=gpu_milli,
        lost_gpu_seconds=decided.lost_gpu_seconds,
    )
    context.new_rows.evictions.append(row)
