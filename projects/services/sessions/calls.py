"""Accept calls from a session's client and return their results."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Sum
from django.utils import timezone

from berth.core.errors import Conflict, Invalid, TooLarge
from berth.core.problems import Problem
from projects.models import Call, Session, SessionWorker
from projects.services.sessions.leases import (
    end_call,
    lease_pending_calls,
    locked_session,
    requeue_lost_worker_calls,
    unfinished_calls,
)

MAX_CALLS = 20_000  # maximum open calls per session
MAX_RESULT_BYTES = 16 * 2**20  # maximum size of a response, unless a single result is larger
LAST_SEEN_INTERVAL = timedelta(seconds=5)
MIB = 2**20


@dataclass(frozen=True, slots=True)
class NewCall:
    key: uuid.UUID
    payload: bytes
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class BroadcastCall:
    """Child call of a broadcast, on one node."""

    key: uuid.UUID
    node: int


@dataclass(frozen=True, slots=True)
class EndedCall:
    number: int
    key: uuid.UUID
    outcome: str
    error: dict[str, Any]
    result: bytes
    node: int | None
    attempts: int
    broadcast: uuid.UUID | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class AddedCalls:
    """Result of `add`. `children` maps the key of each broadcast to its child calls, one per ready node."""

    children: dict[uuid.UUID, list[BroadcastCall]] = field(default_factory=dict)


def add(*, session: Session, calls: Sequence[NewCall], now: datetime | None = None) -> AddedCalls:
    """Add calls, except those whose key already exists.

    Raises Conflict if the session has ended or is full, or if no node is ready for a broadcast.
    """
    at = now or timezone.now()
    _check_sizes(calls)
    added = AddedCalls()
    with locked_session(session) as locked:
        requeue_lost_worker_calls(locked, at)
        existing = set(
            locked.calls.filter(key__in=[call.key for call in calls]).values_list("key", flat=True)
        )
        new_calls = [call for call in calls if call.key not in existing]
        _check_capacity(locked, new_calls)
        Call.objects.bulk_create(
            Call(session=locked, key=call.key, payload=call.payload, size=len(call.payload),
                 is_broadcast=call.everywhere, created_at=at)
            for call in new_calls
        )  # fmt: skip
        for call in calls:
            if call.everywhere:
                added.children[call.key] = _get_or_create_broadcast_calls(locked, call.key)
        locked.seen_at = at
        lease_pending_calls(locked)
    return added


def cancel_calls(*, session: Session, keys: Iterable[uuid.UUID]) -> None:
    """Cancel calls. A running call continues, and its result is discarded."""
    with locked_session(session) as locked:
        for call in unfinished_calls(locked).filter(key__in=list(keys)):
            end_call(locked, call, Call.Outcome.CANCELLED, {"message": "Cancelled by the client."})
        lease_pending_calls(locked)


def fetch_ended_calls(*, session: Session, after: int, now: datetime | None = None) -> list[EndedCall]:
    """Return ended calls with numbers above `after`, and delete all other ended calls."""
    at = now or timezone.now()
    with locked_session(session) as locked:
        requeue_lost_worker_calls(locked, at)
        if after > locked.ended_count:
            raise Invalid([Problem("after", "is in the future", str(after), f"at most {locked.ended_count}")])
        if after > locked.received_count:
            _delete_calls(locked.calls.filter(state=Call.State.ENDED, ended__lte=after))
            locked.received_count = after
        if at - locked.seen_at > LAST_SEEN_INTERVAL:
            locked.seen_at = at
    return _ended_calls_after(locked, after)


def delete_ended_session_calls(*, before: datetime) -> int:
    """Delete calls of sessions that ended before `before`. Return the number of deleted calls."""
    return _delete_calls(Call.objects.filter(session__workload__ended_at__lt=before))


def max_call_bytes() -> int:
    """Return the maximum size of a call or result in bytes."""
    return int(settings.BERTH_CALL_MIB) * MIB


def _delete_calls(calls: QuerySet[Call]) -> int:
    """Delete calls without loading their payloads, which Django would do by default."""
    return calls.only("pk").delete()[0]


def _ended_calls_after(session: Session, after: int) -> list[EndedCall]:
    rows = session.calls.filter(state=Call.State.ENDED, ended__gt=after).order_by("ended")
    sizes = list(rows.values_list("ended", "size")[:1000])
    last, total = after, 0
    for number, size in sizes:
        total += size
        if total > MAX_RESULT_BYTES and last > after:
            break
        last = number or last
    ended_calls = (
        rows.filter(ended__lte=last).select_related("broadcast").defer("payload", "broadcast__payload")
    )
    return [
        EndedCall(
            number=call.ended or 0, key=call.key, outcome=call.outcome, error=call.error,
            result=bytes(call.result), node=call.node, attempts=call.attempts,
            broadcast=call.broadcast.key if call.broadcast else None, late=call.is_late,
        )
        for call in ended_calls
    ]  # fmt: skip


def _get_or_create_broadcast_calls(session: Session, key: uuid.UUID) -> list[BroadcastCall]:
    """Return a broadcast's child calls, one per ready worker."""
    parent = session.calls.get(key=key)
    rows = parent.children.filter(is_late=False).order_by("node")
    if not rows.exists():
        ready = session.workers.filter(state=SessionWorker.State.READY).order_by("node")
        if not ready.exists():
            raise Conflict(
                "No node of the session is ready. Send the broadcast again when a node is ready.",
                reason="no-node",
            )
        Call.objects.bulk_create(
            Call(session=session, key=uuid.uuid4(), broadcast=parent, node=worker.node) for worker in ready
        )
    return [BroadcastCall(child.key, child.node or 0) for child in rows.all()]


def _check_sizes(calls: Sequence[NewCall]) -> None:
    for call in calls:
        if len(call.payload) > max_call_bytes():
            maximum = max_call_bytes() // MIB
            raise TooLarge(
                f"This call is {len(call.payload):,} bytes in size, but the maximum is {maximum} MiB. "
                "Store large data elsewhere and pass its location."
            )


def _check_capacity(session: Session, new_calls: Sequence[NewCall]) -> None:
    if session.workload.phase not in ("pending", "reserved", "starting", "running", "stopping", "suspended"):
        raise Conflict(f"The session has ended: {session.workload.message}", reason="ended")
    if not new_calls:
        return
    live = session.calls.exclude(state=Call.State.ENDED)
    stored_bytes = session.calls.aggregate(n=Sum("size"))["n"] or 0
    max_bytes = int(settings.BERTH_SESSION_MIB) * MIB
    if (
        live.count() + len(new_calls) > MAX_CALLS
        or stored_bytes + sum(len(c.payload) for c in new_calls) > max_bytes
    ):
        text = f"The session is full: the limit is {MAX_CALLS} calls and {max_bytes // MIB} MiB."
        raise Conflict(text, reason="full")
