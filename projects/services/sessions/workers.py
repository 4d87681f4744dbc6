"""Register session workers, deliver calls and accept results."""

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
    add_broadcasts,
    end_call,
    lease_pending_calls,
    locked_session,
    mark_worker_lost,
    requeue_or_fail,
    unfinished_calls,
)
from projects.services.sessions.lifecycle import fail_session

LAST_SEEN_INTERVAL = timedelta(seconds=5)
UNKNOWN_POD = "The pod of this worker is unknown, has ended, or does not belong to a session."


@dataclass(frozen=True, slots=True)
class WorkerVersions:
    python: str
    cloudpickle: str


@dataclass(frozen=True, slots=True)
class LeasedCall:
    """Leased call as it is sent to its worker."""

    number: int
    attempt: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class CallResult:
    """Outcome of a call. An `interrupted` call is requeued."""

    number: int
    outcome: str
    details: dict[str, Any]
    result: bytes = b""


def authenticate_pod(secret: str) -> Pod:
    """Return the live session pod with the given secret. Raises Unauthenticated."""
    key = secrets.verified_key(secret, "pod")
    rows = Pod.objects.select_related(
        "workload__session", "workload__project", "node__pool", "session_worker"
    )
    rows = rows.defer("workload__session__setup")
    if key is not None:
        pod = rows.filter(pk=key, state__in=LIVE_POD_STATES, workload__session__isnull=False).first()
        if pod is not None:
            return pod
    raise Unauthenticated(UNKNOWN_POD)


def fail_on_version_mismatch(*, pod: Pod, versions: WorkerVersions) -> str:
    """Fail the session if the worker's versions are incompatible with the client's.

    Return the error message, or "".
    """
    error = _version_mismatch(pod.workload.session, versions, pod)
    if error:
        fail_session(pod.workload.session, error)
    return error


def join(*, pod: Pod, versions: WorkerVersions, now: datetime | None = None) -> None:
    """Register a worker that is ready for calls."""
    at = now or timezone.now()
    with locked_session(pod.workload.session) as session:
        for previous in session.workers.filter(node=pod.rank).exclude(pod=pod).exclude(state="gone"):
            mark_worker_lost(session, previous, "the worker was lost")
        worker, created = SessionWorker.objects.update_or_create(
            pod=pod,
            defaults={
                "session": session, "node": pod.rank, "state": SessionWorker.State.READY,
                "python": versions.python, "cloudpickle": versions.cloudpickle, "seen_at": at,
            },
        )  # fmt: skip
        if created:
            add_broadcasts(session, worker.node)
            message = f"Node {worker.node} is ready for calls."
            events.record("worker_ready", pod.workload, message, actor="session", data={"node": worker.node})
        lease_pending_calls(session)


def record_heartbeat(*, pod: Pod, now: datetime | None = None) -> None:
    """Record that a worker is alive, at most once every few seconds. Mark a lost worker as ready again."""
    at = now or timezone.now()
    worker = getattr(pod, "session_worker", None)
    if worker is None or (
        worker.state == SessionWorker.State.READY and at - worker.seen_at < LAST_SEEN_INTERVAL
    ):
        return
    with locked_session(pod.workload.session) as session:
        session.workers.filter(pod=pod).update(seen_at=at, state=SessionWorker.State.READY)
        lease_pending_calls(session)
    worker.seen_at, worker.state = at, SessionWorker.State.READY


def deliver_leased_calls(
    *, pod: Pod, received: Collection[int], now: datetime | None = None
) -> list[LeasedCall]:
    """Return leased calls that the worker has not received, and mark them as delivered.

    Also record that the worker is alive.
    """
    record_heartbeat(pod=pod, now=now)
    with transaction.atomic():
        rows = (
            _unreceived_calls(pod, received)
            .select_for_update(of=("self",))
            .select_related("broadcast")
            .order_by("id")
        )
        leased = list(rows.defer("result", "error"))
        undelivered = [call for call in leased if not call.delivered]
        if undelivered:
            numbers = [call.pk for call in undelivered]
            Call.objects.filter(pk__in=numbers).update(delivered=True, attempts=F("attempts") + 1)
    for call in undelivered:
        call.attempts += 1
    return [LeasedCall(call.pk, call.attempts, _payload_bytes(call)) for call in leased]


def _unreceived_calls(pod: Pod, received: Collection[int]) -> QuerySet[Call]:
    is_missing = Q(delivered=False) | ~Q(id__in=received)
    return Call.objects.filter(is_missing, worker=pod.pk, state=Call.State.LEASED)


def _payload_bytes(call: Call) -> bytes:
    return bytes(call.broadcast.payload if call.broadcast else call.payload)


def has_instructions(pod: Pod, received: Collection[int]) -> bool:
    """Return whether the worker has new calls or must stop. Cheap enough for polling."""
    return _unreceived_calls(pod, received).exists() or instructions_for(pod).leave


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions for a worker: whether to shut down, and whether to abandon running calls."""

    leave: bool
    at_once: bool


def instructions_for(pod: Pod) -> Instructions:
    rows = Pod.objects.filter(pk=pod.pk).values_list("state", "workload__phase", "workload__next_phase")
    state, phase, next_phase = rows.first() or (PodState.LOST, "", "")
    is_ending = phase in lifecycle.ENDED or next_phase in lifecycle.ENDED
    return Instructions(state not in (PodState.STARTING, PodState.RUNNING), is_ending)


def accept_results(*, pod: Pod, results: Sequence[CallResult]) -> None:
    """Store the results of calls. If a call has several results, only the first is stored."""
    with locked_session(pod.workload.session) as session:
        rows = unfinished_calls(session).filter(id__in=[result.number for result in results])
        live = {call.pk: call for call in rows}
        for result in results:
            call = live.pop(result.number, None)
            if call is None:
                continue
            if result.outcome != "interrupted":
                end_call(session, call, result.outcome, result.details, result.result)
            elif call.worker_id == pod.pk:
                requeue_or_fail(session, call, result.details)
        lease_pending_calls(session)


def leave(*, pod: Pod, error: str = "") -> None:
    """Remove a worker and requeue its calls. If the worker reports an error, the session fails."""
    with locked_session(pod.workload.session) as session:
        worker = session.workers.filter(pod=pod).first()
        if worker is not None:
            mark_worker_lost(session, worker, "the worker's node was removed")
        lease_pending_calls(session)
    if error:
        fail_session(session, error)


def _version_mismatch(session: Session, versions: WorkerVersions, pod: Pod) -> str:
    for software, worker_version, client_version in (
        ("Python", versions.python, session.python),
        ("cloudpickle", versions.cloudpickle, session.cloudpickle),
    ):
        if _minor_version(worker_version) != _minor_version(client_version):
            return (
                f"Node {pod.rank} of pool {pod.node.pool.name} runs {software} {worker_version}, "
                f"but the client runs {client_version}: functions cannot be sent between them. "
                f"Use {software} {_minor_version(worker_version)} in the client, "
                f"or install {software} {_minor_version(client_version)} in the pool."
            )
    return ""


def _minor_version(version: str) -> str:
    return ".".join(version.split(".")[:2])
