"""Lease session calls to workers, reclaim and complete them.

Everything happens under the lock of the session's row, so that calls end one after the other and none twice.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from berth.db.bell import ring
from projects.engine.turns import Waiting, next_turns
from projects.models import Call, Phase, Pod, Session, SessionWorker
from projects.models.workloads import ENDED_PHASES, LIVE_POD_STATES

BELL = "calls"  # rung with the session for its client, with a pod for its worker
SILENCE = timedelta(seconds=90)  # after which a worker's calls are given to others
_WRITTEN = ("turn", "ends", "taken", "seen_at")
AT_ONCE = 1000  # waiting calls looked at


@contextmanager
def holding(session: Session) -> Iterator[Session]:
    """The session under its lock; what is changed of it is written, and its client told, at the end."""
    with transaction.atomic():
        rows = Session.objects.select_for_update(of=("self",)).select_related("workload__project")
        held = rows.defer("setup").get(pk=session.pk)
        before = {name: getattr(held, name) for name in _WRITTEN}
        yield held
        changed = [name for name in _WRITTEN if getattr(held, name) != before[name]]
        if changed:
            held.save(update_fields=changed)
        if "ends" in changed:
            ring(BELL, [str(held.pk)])


def unended(held: Session) -> QuerySet[Call]:
    """Those to be ended or given back: without their bytes, which may be many and are not looked at."""
    rows = held.calls.exclude(state=Call.State.ENDED).select_related("worker")
    return rows.defer("payload", "result").order_by("id")


def hand_out(held: Session) -> None:
    """Lease what waits to whoever has room."""
    workers = {
        worker.node: worker
        for worker in held.workers.filter(state=SessionWorker.State.READY).annotate(
            busy=Count("calls", filter=Q(calls__state=Call.State.LEASED))
        )
    }
    room = {node: held.slots - worker.busy for node, worker in workers.items()}
    if not any(free > 0 for free in room.values()):
        return
    rows = held.calls.filter(state=Call.State.WAITING, is_broadcast=False).order_by("id")
    waiting = [Waiting(*row) for row in rows.values_list("id", "node")[:AT_ONCE]]
    turns = next_turns(waiting, room, held.turn)
    for node in set(turns.given.values()):
        ids = [call for call, to in turns.given.items() if to == node]
        held.calls.filter(id__in=ids).update(state=Call.State.LEASED, worker=workers[node], delivered=False)
        ring(BELL, [str(workers[node].pk)])
    held.turn = turns.turn


def recover(held: Session, now: datetime) -> bool:
    """Take back what is leased to workers that are gone. True when anything changed."""
    if held.workload.phase in ENDED_PHASES:
        return _end_all(held)
    lost = Q(pod__state__in=LIVE_POD_STATES, seen_at__gte=now - SILENCE)
    gone = list(held.workers.exclude(state=SessionWorker.State.GONE).exclude(lost))
    for worker in gone:
        let_go(held, worker, "its worker was lost")
    changed = bool(gone) | _end_children_of_no_node(held)
    if gone:
        hand_out(held)
    return changed


def let_go(held: Session, worker: SessionWorker, why: str) -> None:
    """The worker is gone: what it had is for others, as often as calls may be tried."""
    worker.state = SessionWorker.State.GONE
    worker.save(update_fields=["state"])
    for call in unended(held).filter(worker=worker, state=Call.State.LEASED):
        give_back(held, call, {"type": "Interrupted", "message": why})


def give_back(held: Session, call: Call, told: Mapping[str, Any]) -> None:
    if call.attempts >= held.max_attempts:
        times = "once" if call.attempts == 1 else f"{call.attempts} times"
        message = f"It was interrupted {times}, the last time because {told.get('message')}."
        end(held, call, Call.Outcome.FAILED, {**told, "message": message})
        return
    call.state, call.worker, call.delivered = Call.State.WAITING, None, False
    call.save(update_fields=["state", "worker", "delivered"])


def end(held: Session, call: Call, outcome: str, told: Mapping[str, Any], result: bytes = b"") -> None:
    held.ends += 1
    call.state, call.outcome, call.told, call.ended = Call.State.ENDED, outcome, dict(told), held.ends
    call.payload, call.result, call.size = b"", result, len(result)
    if call.worker is not None:
        call.node = call.worker.node
    call.save(update_fields=["state", "outcome", "told", "ended", "payload", "result", "size", "node"])


def _end_all(held: Session) -> bool:
    """The session is over: nobody will run these."""
    told = {"type": "SessionEnded", "message": session_end_of(held)}
    left = list(unended(held))
    for call in left:
        end(held, call, Call.Outcome.FAILED, told)
    held.workers.exclude(state=SessionWorker.State.GONE).update(state=SessionWorker.State.GONE)
    return bool(left)


def session_end_of(held: Session) -> str:
    workload = held.workload
    return held.fault or workload.message or f"The session is {workload.phase}."


def _end_children_of_no_node(held: Session) -> bool:
    """A broadcast's call on a node that left for good; a gang that starts again has all its nodes again."""
    if held.workload.phase != Phase.RUNNING:
        return False
    ranks = Pod.objects.filter(
        workload_id=held.pk, run=held.workload.run, state__in=LIVE_POD_STATES
    ).values_list("rank", flat=True)
    orphans = unended(held).filter(state=Call.State.WAITING, broadcast__isnull=False)
    found = list(orphans.exclude(node__in=ranks))
    for call in found:
        told = {"type": "Interrupted", "message": f"Node {call.node} left the session."}
        end(held, call, Call.Outcome.FAILED, told)
    return bool(found)


def broadcasts_for(held: Session, node: int) -> None:
    """Who comes later runs every broadcast as well, unless one for its node still waits."""
    waiting = held.calls.filter(node=node, broadcast__isnull=False).exclude(state=Call.State.ENDED)
    parents = held.calls.filter(is_broadcast=True).exclude(state=Call.State.ENDED)
    late = parents.exclude(pk__in=waiting.values("broadcast")).order_by("id")
    Call.objects.bulk_create(
        Call(session=held, key=uuid.uuid4(), broadcast=parent, node=node, is_late=True) for parent in late
    )
