"""Lease session calls to workers, and requeue or end calls.

All operations lock the session's row, so each call ends only once.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from berth.db.loops.wakeups import notify
from projects.engine.call_assignment import PendingCall, assign_calls
from projects.models import Call, Phase, Pod, Session, SessionWorker
from projects.models.workloads import ENDED_PHASES, LIVE_POD_STATES

CHANNEL = "calls"  # wake-up channel: session IDs wake clients, and pod IDs wake workers
WORKER_TIMEOUT = timedelta(seconds=90)  # a worker that has not reported for this long loses its calls
_SAVED_FIELDS = ("turn", "ended_count", "received_count", "seen_at")
MAX_BATCH = 1000  # maximum pending calls processed at a time


@contextmanager
def locked_session(session: Session) -> Iterator[Session]:
    """Lock the session. On exit, save its changes and notify its client of ended calls."""
    with transaction.atomic():
        rows = Session.objects.select_for_update(of=("self",)).select_related("workload__project")
        locked = rows.defer("setup").get(pk=session.pk)
        before = {name: getattr(locked, name) for name in _SAVED_FIELDS}
        yield locked
        changed = [name for name in _SAVED_FIELDS if getattr(locked, name) != before[name]]
        if changed:
            locked.save(update_fields=changed)
        if "ended_count" in changed:
            notify(CHANNEL, [str(locked.pk)])


def unfinished_calls(session: Session) -> QuerySet[Call]:
    """Return calls that have not ended, without their possibly large payloads and results."""
    rows = session.calls.exclude(state=Call.State.ENDED).select_related("worker")
    return rows.defer("payload", "result").order_by("id")


def lease_pending_calls(session: Session) -> None:
    """Lease pending calls to workers with free slots."""
    workers = {
        worker.node: worker
        for worker in session.workers.filter(state=SessionWorker.State.READY).annotate(
            busy=Count("calls", filter=Q(calls__state=Call.State.LEASED))
        )
    }
    room = {node: session.slots - worker.busy for node, worker in workers.items()}
    if not any(free_slots > 0 for free_slots in room.values()):
        return
    rows = session.calls.filter(state=Call.State.PENDING, is_broadcast=False).order_by("id")
    pending = [PendingCall(*row) for row in rows.values_list("id", "node")[:MAX_BATCH]]
    assignment = assign_calls(pending, room, session.turn)
    for node in set(assignment.assigned.values()):
        ids = [call for call, to in assignment.assigned.items() if to == node]
        session.calls.filter(id__in=ids).update(
            state=Call.State.LEASED, worker=workers[node], delivered=False
        )
        notify(CHANNEL, [str(workers[node].pk)])
    session.turn = assignment.turn


def requeue_lost_worker_calls(session: Session, now: datetime) -> bool:
    """Requeue the calls of lost workers, and fail calls that can no longer run. Return whether anything
    changed.
    """
    if session.workload.phase in ENDED_PHASES:
        return _fail_open_calls(session)
    is_live = Q(pod__state__in=LIVE_POD_STATES, seen_at__gte=now - WORKER_TIMEOUT)
    lost_workers = list(session.workers.exclude(state=SessionWorker.State.GONE).exclude(is_live))
    for worker in lost_workers:
        mark_worker_lost(session, worker, "the worker was lost")
    changed = bool(lost_workers) | _fail_calls_without_node(session)
    if lost_workers:
        lease_pending_calls(session)
    return changed


def mark_worker_lost(session: Session, worker: SessionWorker, reason: str) -> None:
    """Mark a worker as lost and requeue its calls, up to their maximum number of attempts."""
    worker.state = SessionWorker.State.GONE
    worker.save(update_fields=["state"])
    for call in unfinished_calls(session).filter(worker=worker, state=Call.State.LEASED):
        requeue_or_fail(session, call, {"type": "Interrupted", "message": reason})


def requeue_or_fail(session: Session, call: Call, error: Mapping[str, Any]) -> None:
    if call.attempts >= session.max_attempts:
        times = "once" if call.attempts == 1 else f"{call.attempts} times"
        message = f"The call was interrupted {times}. Last reason: {error.get('message')}."
        end_call(session, call, Call.Outcome.FAILED, {**error, "message": message})
        return
    call.state, call.worker, call.delivered = Call.State.PENDING, None, False
    call.save(update_fields=["state", "worker", "delivered"])


def end_call(
    session: Session, call: Call, outcome: str, error: Mapping[str, Any], result: bytes = b""
) -> None:
    session.ended_count += 1
    call.state, call.outcome, call.error, call.ended = (
        Call.State.ENDED,
        outcome,
        dict(error),
        session.ended_count,
    )
    call.payload, call.result, call.size = b"", result, len(result)
    if call.worker is not None:
        call.node = call.worker.node
    call.save(update_fields=["state", "outcome", "error", "ended", "payload", "result", "size", "node"])


def _fail_open_calls(session: Session) -> bool:
    error = {"type": "SessionEnded", "message": end_message(session)}
    remaining = list(unfinished_calls(session))
    for call in remaining:
        end_call(session, call, Call.Outcome.FAILED, error)
    session.workers.exclude(state=SessionWorker.State.GONE).update(state=SessionWorker.State.GONE)
    return bool(remaining)


def end_message(session: Session) -> str:
    workload = session.workload
    return session.error or workload.message or f"The session is {workload.phase}."


def _fail_calls_without_node(session: Session) -> bool:
    """Fail broadcast calls for nodes that have left permanently. Return whether any call failed."""
    # Once a gang has restarted, it has all of its nodes again.
    if session.workload.phase != Phase.RUNNING:
        return False
    ranks = Pod.objects.filter(
        workload_id=session.pk, run=session.workload.run, state__in=LIVE_POD_STATES
    ).values_list("rank", flat=True)
    orphans = unfinished_calls(session).filter(state=Call.State.PENDING, broadcast__isnull=False)
    orphaned = list(orphans.exclude(node__in=ranks))
    for call in orphaned:
        error = {"type": "Interrupted", "message": f"Node {call.node} left the session."}
        end_call(session, call, Call.Outcome.FAILED, error)
    return bool(orphaned)


def add_broadcasts(session: Session, node: int) -> None:
    """Add the calls of open broadcasts for a node that joined later, unless they already exist."""
    pending = session.calls.filter(node=node, broadcast__isnull=False).exclude(state=Call.State.ENDED)
    parents = session.calls.filter(is_broadcast=True).exclude(state=Call.State.ENDED)
    late = parents.exclude(pk__in=pending.values("broadcast")).order_by("id")
    Call.objects.bulk_create(
        Call(session=session, key=uuid.uuid4(), broadcast=parent, node=node, is_late=True) for parent in late
    )
