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
from projects.services.sessions.leases import end, hand_out, holding, recover, unended

CALLS_MAX = 20_000  # of one session that have not ended
ANSWER_MAX = 16 * 2**20  # of results at a time, unless one alone is larger
SEEN_EVERY = timedelta(seconds=5)
MIB = 2**20


@dataclass(frozen=True, slots=True)
class NewCall:
    key: uuid.UUID
    payload: bytes
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """A broadcast's call on one node that was ready when it came."""

    key: uuid.UUID
    node: int


@dataclass(frozen=True, slots=True)
class Ended:
    number: int
    key: uuid.UUID
    outcome: str
    told: dict[str, Any]
    result: bytes
    node: int | None
    attempts: int
    broadcast: uuid.UUID | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Added:
    """`children`: by broadcast, one for each node that was ready."""

    children: dict[uuid.UUID, list[Child]] = field(default_factory=dict)


def add(*, session: Session, calls: Sequence[NewCall], now: datetime | None = None) -> Added:
    """Keys that are known are left alone: sent twice, a call is one call.

    Raises Conflict when the session has ended, holds too much, or a broadcast finds no node ready.
    """
    at = now or timezone.now()
    _check_sizes(calls)
    added = Added()
    with holding(session) as held:
        recover(held, at)
        known = set(held.calls.filter(key__in=[call.key for call in calls]).values_list("key", flat=True))
        fresh = [call for call in calls if call.key not in known]
        _check_room(held, fresh)
        Call.objects.bulk_create(
            Call(session=held, key=call.key, payload=call.payload, size=len(call.payload),
                 is_broadcast=call.everywhere, created_at=at)
            for call in fresh
        )  # fmt: skip
        for call in calls:
            if call.everywhere:
                added.children[call.key] = _children(held, call.key)
        held.seen_at = at
        hand_out(held)
    return added


def drop(*, session: Session, keys: Iterable[uuid.UUID]) -> None:
    """Calls that nobody wants any more; one that runs goes on to its end, and its result is dropped."""
    with holding(session) as held:
        for call in unended(held).filter(key__in=list(keys)):
            end(held, call, Call.Outcome.CANCELLED, {"message": "Cancelled by its client."})
        hand_out(held)


def take_ended(*, session: Session, after: int, now: datetime | None = None) -> list[Ended]:
    """What ended since, in that order; what came before is the client's by now and is forgotten."""
    at = now or timezone.now()
    with holding(session) as held:
        recover(held, at)
        if after > held.ends:
            raise Invalid([Problem("after", "lies ahead", str(after), f"at most {held.ends}")])
        if after > held.taken:
            _forget(held.calls.filter(state=Call.State.ENDED, ended__lte=after))
            held.taken = after
        if at - held.seen_at > SEEN_EVERY:
            held.seen_at = at
    return _ended_since(held, after)


def forget_ended(*, before: datetime) -> int:
    """Calls of sessions that had ended by then: no client comes for them any more."""
    return _forget(Call.objects.filter(session__workload__ended_at__lt=before))


def limit() -> int:
    """Bytes of one call or one result."""
    return int(settings.BERTH_CALL_MIB) * MIB


def _forget(calls: QuerySet[Call]) -> int:
    """Django reads what it deletes, as a call may have children: not their bytes, though."""
    return calls.only("pk").delete()[0]


def _ended_since(held: Session, after: int) -> list[Ended]:
    rows = held.calls.filter(state=Call.State.ENDED, ended__gt=after).order_by("ended")
    sizes = list(rows.values_list("ended", "size")[:1000])
    last, total = after, 0
    for number, size in sizes:
        total += size
        if total > ANSWER_MAX and last > after:
            break
        last = number or last
    found = rows.filter(ended__lte=last).select_related("broadcast").defer("payload", "broadcast__payload")
    return [
        Ended(
            number=call.ended or 0, key=call.key, outcome=call.outcome, told=call.told,
            result=bytes(call.result), node=call.node, attempts=call.attempts,
            broadcast=call.broadcast.key if call.broadcast else None, late=call.is_late,
        )
        for call in found
    ]  # fmt: skip


def _children(held: Session, key: uuid.UUID) -> list[Child]:
    """One for each worker that is ready; asked again, the same ones."""
    parent = held.calls.get(key=key)
    rows = parent.children.filter(is_late=False).order_by("node")
    if not rows.exists():
        ready = held.workers.filter(state=SessionWorker.State.READY).order_by("node")
        if not ready.exists():
            raise Conflict("No node of the session is ready: send it again when one is.", reason="no-node")
        Call.objects.bulk_create(
            Call(session=held, key=uuid.uuid4(), broadcast=parent, node=worker.node) for worker in ready
        )
    return [Child(child.key, child.node or 0) for child in rows.all()]


def _check_sizes(calls: Sequence[NewCall]) -> None:
    for call in calls:
        if len(call.payload) > limit():
            given = f"this one has {len(call.payload)} bytes"
            raise TooLarge(f"A call may have at most {limit() // MIB} MiB; {given}.")


def _check_room(held: Session, fresh: Sequence[NewCall]) -> None:
    if held.workload.phase not in ("pending", "reserved", "starting", "running", "stopping", "suspended"):
        raise Conflict(f"The session has ended: {held.workload.message}", reason="ended")
    if not fresh:
        return
    live = held.calls.exclude(state=Call.State.ENDED)
    bytes_held = held.calls.aggregate(n=Sum("size"))["n"] or 0
    most = int(settings.BERTH_SESSION_MIB) * MIB
    if live.count() + len(fresh) > CALLS_MAX or bytes_held + sum(len(c.payload) for c in fresh) > most:
        text = f"The session holds as much as it may: {CALLS_MAX} calls, {most // MIB} MiB."
        raise Conflict(text, reason="full")
