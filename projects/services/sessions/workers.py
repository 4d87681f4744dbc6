"""Register session workers, hand out calls and accept results."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from berth.core.errors import Unauthenticated
from pools.joining import secrets
from projects.engine import lifecycle
from projects.models import Call, Pod, PodState, Session, SessionWorker
from projects.models.workloads import LIVE_POD_STATES
from projects.services import events
from projects.services.sessions.leases import (
    broadcasts_for,
    end,
    give_back,
    hand_out,
    holding,
    let_go,
    unended,
)
from projects.services.sessions.lifecycle import end_by_fault

SEEN_EVERY = timedelta(seconds=5)
UNKNOWN = "This worker's pod is not known, has ended, or is no session's."


@dataclass(frozen=True, slots=True)
class Hello:
    """What a worker runs on."""

    python: str
    cloudpickle: str


@dataclass(frozen=True, slots=True)
class Order:
    """A call as its worker gets it."""

    number: int
    attempt: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an order; `interrupted` is for somebody else to try."""

    number: int
    outcome: str
    told: dict[str, Any]
    result: bytes = b""


def pod_behind(secret: str) -> Pod:
    """The live pod of a session that shows this secret. Raises Unauthenticated."""
    key = secrets.subject(secret, "pod")
    rows = Pod.objects.select_related(
        "workload__session", "workload__project", "node__pool", "session_worker"
    )
    rows = rows.defer("workload__session__setup")
    if key is not None:
        pod = rows.filter(pk=key, state__in=LIVE_POD_STATES, workload__session__isnull=False).first()
        if pod is not None:
            return pod
    raise Unauthenticated(UNKNOWN)


def greet(*, pod: Pod, hello: Hello) -> str:
    """What is wrong with the worker, or nothing. What is wrong ends the session."""
    fault = _mismatch(pod.workload.session, hello, pod)
    if fault:
        end_by_fault(pod.workload.session, fault)
    return fault


def join(*, pod: Pod, hello: Hello, now: datetime | None = None) -> None:
    """It takes calls from now on."""
    at, session = now or timezone.now(), pod.workload.session
    with holding(session) as held:
        for former in held.workers.filter(node=pod.rank).exclude(pod=pod).exclude(state="gone"):
            let_go(held, former, "its worker was lost")
        worker, made = SessionWorker.objects.update_or_create(
            pod=pod,
            defaults={
                "session": held, "node": pod.rank, "state": SessionWorker.State.READY,
                "python": hello.python, "cloudpickle": hello.cloudpickle, "seen_at": at,
            },
        )  # fmt: skip
        if made:
            broadcasts_for(held, worker.node)
            said = f"Node {worker.node} takes calls."
            events.record("worker_ready", pod.workload, said, actor="session", data={"node": worker.node})
        hand_out(held)


def seen(*, pod: Pod, now: datetime | None = None) -> None:
    """It is alive; written down now and then. Who was taken for lost, as after a time in which nobody could
    call, is one of those that take calls again."""
    at = now or timezone.now()
    worker = getattr(pod, "session_worker", None)
    if worker is None or (worker.state == SessionWorker.State.READY and at - worker.seen_at < SEEN_EVERY):
        return
    with holding(pod.workload.session) as held:
        held.workers.filter(pod=pod).update(seen_at=at, state=SessionWorker.State.READY)
        hand_out(held)
    worker.seen_at, worker.state = at, SessionWorker.State.READY


def take(*, pod: Pod, having: Collection[int], now: datetime | None = None) -> list[Order]:
    """What is leased to it and what, as it says, it does not have: a lost answer comes again."""
    seen(pod=pod, now=now)
    with transaction.atomic():
        rows = _leased(pod, having).select_for_update(of=("self",)).select_related("broadcast").order_by("id")
        found = list(rows.defer("result", "told"))
        fresh = [call for call in found if not call.delivered]
        if fresh:
            numbers = [call.pk for call in fresh]
            Call.objects.filter(pk__in=numbers).update(delivered=True, attempts=F("attempts") + 1)
    for call in fresh:
        call.attempts += 1
    return [Order(call.pk, call.attempts, _payload_of(call)) for call in found]


def _leased(pod: Pod, having: Collection[int]) -> QuerySet[Call]:
    """What it does not have. It may have had a call before that was given back, and is its own once more."""
    news = Q(delivered=False) | ~Q(id__in=having)
    return Call.objects.filter(news, worker=pod.pk, state=Call.State.LEASED)


def _payload_of(call: Call) -> bytes:
    return bytes(call.broadcast.payload if call.broadcast else call.payload)


def has_news(pod: Pod, having: Collection[int]) -> bool:
    """Whether there are calls for it, or it has to leave; cheap enough to be asked again and again."""
    return _leased(pod, having).exists() or stay_of(pod).leave


@dataclass(frozen=True, slots=True)
class Stay:
    """`leave`: take no more calls. `at_once`: nobody waits for the ones that run, either."""

    leave: bool
    at_once: bool


def stay_of(pod: Pod) -> Stay:
    rows = Pod.objects.filter(pk=pod.pk).values_list("state", "workload__phase", "workload__next_phase")
    state, phase, leads_to = rows.first() or (PodState.LOST, "", "")
    ends = phase in lifecycle.ENDED or leads_to in lifecycle.ENDED
    return Stay(state not in (PodState.STARTING, PodState.RUNNING), ends)


def finish(*, pod: Pod, done: Sequence[Done]) -> None:
    """Whoever brings a call's result first has ended it; what comes after that changes nothing."""
    with holding(pod.workload.session) as held:
        rows = unended(held).filter(id__in=[one.number for one in done])
        live = {call.pk: call for call in rows}
        for one in done:
            call = live.pop(one.number, None)
            if call is None:
                continue
            if one.outcome != "interrupted":
                end(held, call, one.outcome, one.told, one.result)
            elif call.worker_id == pod.pk:
                give_back(held, call, one.told)
        hand_out(held)


def leave(*, pod: Pod, fault: str = "") -> None:
    """It takes no more calls; what it still has goes to others. A fault ends the session."""
    with holding(pod.workload.session) as held:
        worker = held.workers.filter(pod=pod).first()
        if worker is not None:
            let_go(held, worker, "its node was taken away")
        hand_out(held)
    if fault:
        end_by_fault(held, fault)


def _mismatch(session: Session, hello: Hello, pod: Pod) -> str:
    """Functions are code of one version of Python, wrapped by one version of cloudpickle."""
    for what, there, here in (
        ("Python", hello.python, session.python),
        ("cloudpickle", hello.cloudpickle, session.cloudpickle),
    ):
        if _series(there) != _series(here):
            return (
                f"Node {pod.rank} of pool {pod.node.pool.name} runs {what} {there}, the client {here}: "
                f"functions cannot be sent from one to the other. Use {what} {_series(there)} in the client, "
                f"or let the pool have {what} {_series(here)}."
            )
    return ""


def _series(version: str) -> str:
    return ".".join(version.split(".")[:2])
