"""Start and stop pods to match their rows. All operations are idempotent."""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.queries.compiled import compiled_once
from berth.db.writes.bulk_rows import RelatedRows, load_related_objects
from berth.db.writes.moves import RowChange
from berth.db.writes.set_writes import write_changes, write_with_bisection
from pools.models import Node
from pools.runtimes.base import PodSpec, RuntimeFailure, StartRejected, StopNotice
from projects.engine.pod_sentences import format_pod
from projects.models import Phase, Pod, PodState, Workload
from projects.services.secrets import MissingSecret
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.evictions.notices import record_notices, stop_notice
from scheduler.loop.dispatch.evictions.rejected_starts import handle_rejections, was_rejected_recently
from scheduler.loop.dispatch.lifecycle.gangs import change_phases_and_stop_pods
from scheduler.loop.dispatch.starts.endpoints import assign_endpoints, is_service_pod
from scheduler.loop.dispatch.starts.images import NO_IMAGE, RunImages, resolve_images
from scheduler.loop.dispatch.starts.messages import store_start_messages
from scheduler.loop.dispatch.starts.pod_specs import awaits_address, build_pod_spec
from scheduler.loop.dispatch.starts.ports import assign_ports, has_ports
from scheduler.loop.dispatch.starts.rendezvous import assign_rendezvous
from scheduler.loop.dispatch.starts.secrets import SecretReader, record_secret_uses
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.queries import PROJECTS

log = logging.getLogger(__name__)

RESEND_INTERVAL = timedelta(seconds=15)  # interval for repeating starts and stops that had no effect
STARTS_AHEAD = 32  # maximum number of unfinished starts in the runtimes while a tick starts pods
STARTS_BETWEEN = 64  # maximum number of unfinished starts in the runtimes between two ticks
NEVER = datetime.min.replace(tzinfo=UTC)

START_ERRORS = (MissingSecret, RuntimeFailure, LookupError, OSError, ValueError, StopIteration)

# Do not filter by phase here, because PostgreSQL might read the entire phase index for each pod.
STARTING = compiled_once(
    lambda running: (
        Pod.objects.filter(state=PodState.STARTING)
        .exclude(pk__any=running)
        .select_related("workload__session", "workload__array", "allocation")
        .defer(
            "workload__labels",
            "workload__explanation",
            "workload__pending_reasons",
            "workload__session__setup",
            "workload__array__spec",
        )
        .order_by("workload_id", "rank", "pk")
    )
)
STOPPING = compiled_once(
    lambda: Pod.objects.filter(state=PodState.STOPPING).select_related("workload").order_by("pk")
)
GANGS = compiled_once(
    lambda keys: (
        Pod.objects.filter(workload_id__any=keys, state__in=("starting", "running", "succeeded"))
        .only("workload_id", "run", "role", "rank", "state", "address", "node__address")
        .select_related("node")
        .order_by("workload_id", "rank", "pk")
    )
)
NODES = compiled_once(lambda keys: Node.objects.filter(pk__any=keys).select_related("pool", "environment"))


def start_pods(now: datetime, context: SchedulerContext, projects: RelatedRows = PROJECTS) -> list[str]:
    """Start the pods in state `starting`, and return a note for each failure.

    Some pods may be left for the next tick. `projects` returns project rows by ID.
    """
    assert_no_transaction()
    starting_pods = _starting_pods(context, projects)
    context.sent.retain_starts({pod.pk for pod in starting_pods})
    paused = {pod.pk: pod for pod in starting_pods if was_rejected_recently(pod, now, context.sent)}
    due_pods = [
        pod for pod in starting_pods if pod.pk not in paused and _is_due(context.sent.started, pod.pk, now)
    ]
    paused_workloads = {pod.workload_id for pod in paused.values()}
    earlier_failures = {
        pk: text for pk, text in context.start_messages.failures.items() if pk in paused_workloads
    }
    context.start_messages.failures = earlier_failures
    context.sent.starts_left = False
    if not due_pods:
        handle_rejections(starting_pods, (), {}, now, context)
        return []
    assign_rendezvous(due_pods, context)
    assign_endpoints(due_pods, context)
    assign_ports(due_pods, context)
    images = resolve_images(due_pods, now, context)
    store_start_messages(images.pending, now, context)
    due_pods = [pod for pod in due_pods if pod.workload_id not in images.pending]
    gangs, reader = _gangs_by_workload(due_pods, context.specs), SecretReader()
    due_pods = [pod for pod in due_pods if not awaits_address(pod, gangs[pod.workload_id])]
    # Pods whose start has failed come last, least recently tried first, so that they do not delay others.
    failed = {pod.pk: context.sent.failed.get(pod.pk, NEVER) for pod in due_pods}
    due_pods.sort(key=lambda pod: (pod.message != "", failed[pod.pk]))
    due_pods, later_pods = due_pods[: context.size.starts], due_pods[context.size.starts :]
    context.sent.starts_left = any(pod.message == "" for pod in later_pods)
    candidates = [pod for pod in later_pods[:STARTS_BETWEEN] if pod.message == ""]
    next_pods = [pod for pod in candidates if _starts_in_background(pod, context)]
    record_secret_uses([*due_pods, *next_pods], images, reader, now, context)
    build = partial(_build_pod_spec, gangs=gangs, images=images, reader=reader, context=context)
    attempts = _start_and_log_failures(_begin_starts(due_pods, next_pods, build, context), now, context)
    if len(attempts.failures) < len(due_pods):
        return attempts.notes  # this process is no longer the leader
    failures = attempts.failures
    context.sent.failed = failed | dict.fromkeys((pk for pk, failure in failures.items() if failure), now)
    _store_failures([pod for pod in due_pods if failures[pod.pk] != pod.message], failures, context)
    _fail_for_missing_secrets(attempts.missing_secrets, now, context)
    accepted = {pk for pk, failure in failures.items() if not failure}
    handle_rejections(starting_pods, accepted, attempts.rejected, now, context)
    context.start_messages.failures = earlier_failures | {
        pod.workload_id: f"{format_pod(pod.role, pod.index)} {failures[pod.pk]}."
        for pod in reversed(due_pods)
        if failures[pod.pk]
    }
    store_start_messages(context.start_messages.failures, now, context)
    return attempts.notes


@dataclass(slots=True)
class _PodStartResults:
    """Results of starting pods.

    `failures` maps each pod to its failure, or to an empty string if it started. `failed` groups the pods by
    error.
    """

    notes: list[str] = field(default_factory=list)
    failed: dict[str, list[Pod]] = field(default_factory=dict)
    failures: dict[uuid.UUID, str] = field(default_factory=dict)
    missing_secrets: dict[uuid.UUID, str] = field(default_factory=dict)
    rejected: dict[uuid.UUID, str] = field(default_factory=dict)


def _start_and_log_failures(starts: "Starts", now: datetime, context: SchedulerContext) -> _PodStartResults:
    """Start pods while this process is the leader. Log one warning for all pods with the same error."""
    attempts = _PodStartResults()
    _try_starts(starts, now, context, attempts)
    for error, failed in attempts.failed.items():
        first, count = failed[0], len(failed) - 1
        others = f" and {count} other{'s' if count > 1 else ''}" if count else ""
        log.warning("pod %s%s could not be started: %s", first.pk, others, error)
        name = f"{format_pod(first.role, first.index)} of {first.workload.handle}{others}"
        attempts.notes.append(f"{name} could not be started: {error}")
    return attempts


def _try_starts(
    starts: "Starts", now: datetime, context: SchedulerContext, attempts: _PodStartResults
) -> None:
    for pod, pod_spec in starts:
        if not context.leads():
            attempts.notes.append("This scheduler lost leadership while starting pods.")
            return
        attempts.failures[pod.pk] = ""
        try:
            if isinstance(pod_spec, Exception):
                raise pod_spec
            context.runtimes(pod.node.pool).start(pod_spec)
        except START_ERRORS as error:
            attempts.failed.setdefault(str(error), []).append(pod)
            if isinstance(error, MissingSecret):
                attempts.missing_secrets.setdefault(pod.workload_id, str(error))
            if isinstance(error, StartRejected):
                attempts.rejected[pod.pk] = str(error)
            attempts.failures[pod.pk] = f"could not be started yet: {error}"
            continue
        context.sent.started[pod.pk] = now
        crash_point("dispatch.started")


def _store_failures(
    pods: Sequence[Pod], failures: Mapping[uuid.UUID, str], context: SchedulerContext
) -> None:
    if not pods:
        return
    with fenced_transaction(context.held_lease):
        changes = [RowChange(pod.pk, [PodState.STARTING], {"message": failures[pod.pk]}) for pod in pods]
        write_changes(Pod, "state", changes)
    crash_point("dispatch.reasons")


def _fail_for_missing_secrets(
    messages: Mapping[uuid.UUID, str], now: datetime, context: SchedulerContext
) -> None:
    """Stop workloads that are starting and lack a secret, so that they fail."""
    if not messages:
        return
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        workloads = list(rows.filter(pk__in=messages, phase=Phase.STARTING).order_by("pk"))
        rejected = write_with_bisection(
            workloads,
            lambda part: change_phases_and_stop_pods(
                [_failure_transition(row, messages[row.pk]) for row in part], now
            ),
        )
    for row, reason in rejected:
        log.error("workload %s lacks a secret and could not be stopped: %s", row.pk, reason)
    crash_point("dispatch.secrets")


def _failure_transition(workload: Workload, message: str) -> PhaseTransition:
    data, columns = {"run": workload.run}, {"next_phase": Phase.FAILED}
    return PhaseTransition(
        workload, [Phase.STARTING], Phase.STOPPING, "SecretNotFound", message, data=data, columns=columns
    )


def stop_pods(now: datetime, context: SchedulerContext) -> list[str]:
    """Stop every pod in state `stopping`. Return a note for each failure."""
    assert_no_transaction()
    pods = list(STOPPING())
    load_related_objects(pods, "node", NODES)
    stopping = {pod.pk for pod in pods}
    context.sent.stopped = {pk: at for pk, at in context.sent.stopped.items() if pk in stopping}
    notes: list[str] = []
    noticed: dict[uuid.UUID, tuple[Pod, StopNotice]] = {}
    for pod in pods:
        if not _is_due(context.sent.stopped, pod.pk, now):
            continue
        if not context.leads():
            return [*notes, "This scheduler lost leadership while stopping pods."]
        spec = context.specs.get(pod.workload).spec
        notice = stop_notice(pod, spec, now)
        crash_point("dispatch.before_stop")
        try:
            runtime, grace = context.runtimes(pod.node.pool), spec.grace_period_seconds if spec else 0
            runtime.stop(str(pod.pk), grace, notice)
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("pod %s could not be stopped: %s", pod.pk, error)
            notes.append(f"Pod {pod.pk} could not be stopped: {error}")
            continue
        context.sent.stopped[pod.pk] = now
        if notice is not None:
            noticed[pod.pk] = pod, notice
        crash_point("dispatch.stopped")
    record_notices(noticed, now, context)
    return notes


def _starting_pods(context: SchedulerContext, projects: RelatedRows) -> list[Pod]:
    """Return the starting pods that their runtime has not yet reported as running."""
    running = [*context.reported_running]
    pods = [pod for pod in STARTING(running) if pod.workload.phase in (Phase.STARTING, Phase.RUNNING)]
    for pod in pods:
        # Clear the allocation's reference to the pod, so that reference counting frees all of these objects.
        if (allocation := pod._state.fields_cache.get("allocation")) is not None:
            allocation._state.fields_cache.clear()
    load_related_objects([pod.workload for pod in pods], "project", projects)
    load_related_objects(pods, "node", NODES)
    return pods


Starts = Iterator[tuple[Pod, PodSpec | Exception]]


def _begin_starts(
    pods: Iterable[Pod], next_pods: Iterable[Pod], build: Callable[[Pod], PodSpec], context: SchedulerContext
) -> Starts:
    """Start pods in the background, up to STARTS_AHEAD at a time.

    Yield each of `pods` with its spec, or with the error that prevents its start.
    """
    ahead: deque[tuple[Pod, PodSpec | Exception]] = deque()
    for pod in pods:
        ahead.append((pod, _begin_start(pod, build, context)))
        if len(ahead) == STARTS_AHEAD:
            yield ahead.popleft()
    for pod in next_pods:
        _begin_start(pod, build, context)
    yield from ahead


def _starts_in_background(pod: Pod, context: SchedulerContext) -> bool:
    try:
        return context.runtimes(pod.node.pool).starts_in_background
    except START_ERRORS:
        return False


def _begin_start(pod: Pod, build: Callable[[Pod], PodSpec], context: SchedulerContext) -> PodSpec | Exception:
    try:
        pod_spec = build(pod)
        crash_point("dispatch.before_start")
        if context.leads():
            context.runtimes(pod.node.pool).begin_start(pod_spec)
    except START_ERRORS as error:
        return error
    return pod_spec


def _build_pod_spec(
    pod: Pod, *, gangs: Mapping[uuid.UUID, Sequence[Pod]], images: RunImages, reader: SecretReader,
    context: SchedulerContext,
) -> PodSpec:  # fmt: skip
    spec = context.specs.get(pod.workload).spec
    if spec is None:
        raise ValueError("the workload's stored document is no longer valid")
    if pod.workload.rendezvous is None:
        raise ValueError("no rendezvous address has been assigned to the workload yet")
    if is_service_pod(pod) and pod.endpoint is None:
        raise ValueError("no service port has been assigned to the pod yet")
    if has_ports(pod) and pod.ports is None:
        raise ValueError("no host ports have been assigned to the pod yet")
    image = images.ready.get(pod.workload_id, NO_IMAGE)
    return build_pod_spec(pod, spec, gangs[pod.workload_id], image, reader)


def _gangs_by_workload(pods: Iterable[Pod], specs: SpecCache) -> dict[uuid.UUID, list[Pod]]:
    """Return the starting, running and succeeded pods in each workload's current run."""
    gangs: dict[uuid.UUID, list[Pod]] = {}
    runs: dict[uuid.UUID, int] = {}
    for pod in pods:
        is_alone = specs.get(pod.workload).has_one_replica
        gangs[pod.workload_id] = [pod] if is_alone else []
        if not is_alone:
            runs[pod.workload_id] = pod.run
    for pod in GANGS([*runs]) if runs else ():
        if pod.run == runs[pod.workload_id]:
            gangs[pod.workload_id].append(pod)
    return gangs


def _is_due(sent: dict[uuid.UUID, datetime], pk: uuid.UUID, now: datetime) -> bool:
    return pk not in sent or now - sent[pk] >= RESEND_INTERVAL
