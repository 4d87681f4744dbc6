"""Enforce the time limits of workloads: start timeout, maximum runtime, deadline and idle timeout.

A workload that exceeds a limit fails, except that an interactive workload completes after its idle timeout.
Retry rules apply to the start timeout and the maximum runtime. A workload is idle while its pods write no
logs and receive no requests. A session is idle while its client sends no requests.
"""

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import F, Max

from berth.core.spec.sections.retry import IMAGE_PULL, TIMEOUT
from berth.core.spec.sections.retry import START_TIMEOUT as START_TIMEOUT_KIND
from berth.core.values.durations import format_duration
from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import fenced_transaction
from berth.db.queries import prepared
from berth.db.queries.compiled import compiled_once
from berth.db.writes.set_writes import write_with_bisection
from pools.runtimes.base import RuntimeFailure
from projects.engine.retries import Failure
from projects.models import Phase, Pod, PodState, PortLink, RunImage, Session, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.lifecycle.gangs import change_phases_and_stop_pods
from scheduler.loop.dispatch.lifecycle.retries import node_names, transition_after_failure
from scheduler.loop.observe.specs import SpecCache

log = logging.getLogger(__name__)

START_TIMEOUT = timedelta(minutes=5)
PULL_TIMEOUT = timedelta(minutes=15)  # time without progress after which an image pull fails
NO_KNOWN_FAILURE = "; the node accepted the pods but has reported nothing since."
PENDING_PHASES = (Phase.PENDING, Phase.RESERVED, Phase.SUSPENDED)
LIVE_PHASES = (*PENDING_PHASES, Phase.STARTING, Phase.RUNNING)
LIVE = ", ".join(f"'{phase}'" for phase in LIVE_PHASES)
ENDED = ", ".join(f"'{phase}'" for phase in ENDED_PHASES)
# The earliest deadline is the first entry of an index.
# Without statistics, the planner would read all workloads to find one past its deadline.
DUE_LIMITS = f"""
    SELECT EXISTS (SELECT FROM projects_workload WHERE phase = 'starting' AND since <= %s),
           EXISTS (SELECT FROM projects_workload
                    WHERE phase = 'running' AND started_at + max_runtime * interval '1 second' <= %s),
           coalesce((SELECT deadline FROM projects_workload
                      WHERE phase NOT IN ({ENDED}) AND deadline IS NOT NULL
                      ORDER BY deadline LIMIT 1) <= %s, false),
           EXISTS (SELECT FROM projects_session AS session
                     JOIN projects_workload AS workload ON workload.id = session.workload_id
                    WHERE workload.phase IN ({LIVE})
                      AND session.seen_at + session.idle_timeout * interval '1 second' <= %s),
           EXISTS (SELECT FROM projects_workload WHERE phase = 'running' AND idle_timeout IS NOT NULL)
"""  # noqa: S608

STARTING = compiled_once(
    lambda since: (
        Workload.objects.filter(phase=Phase.STARTING, since__lte=since)
        .order_by("pk")
        .values_list("pk", flat=True)
    )
)
WITH_MAX_RUNTIME = compiled_once(
    lambda: (
        Workload.objects.filter(phase=Phase.RUNNING, max_runtime__isnull=False, started_at__isnull=False)
        .order_by("pk")
        .values_list("pk", "max_runtime", "started_at")
    )
)
PAST_DEADLINE = compiled_once(
    lambda now: (
        Workload.objects.filter(phase__in=LIVE_PHASES, deadline__lte=now)
        .order_by("pk")
        .values_list("pk", "deadline")
    )
)
WITH_IDLE_TIMEOUT = compiled_once(
    lambda: (
        Workload.objects.filter(phase=Phase.RUNNING, idle_timeout__isnull=False)
        .order_by("pk")
        .only("pk", "name", "idle_timeout")
    )
)
SESSIONS = compiled_once(
    lambda: (
        Session.objects.filter(workload__phase__in=LIVE_PHASES)
        .order_by("pk")
        .values_list("pk", "seen_at", "idle_timeout")
    ),
    planned_once=False,
)


@dataclass(slots=True)
class IdleTracker:
    """Log size of each workload with an idle timeout, and when the size last changed."""

    sizes: dict[uuid.UUID, tuple[int, datetime]] = field(default_factory=dict)
    checked_at: dict[uuid.UUID, datetime] = field(default_factory=dict)

    def clear(self) -> None:
        self.sizes.clear()
        self.checked_at.clear()


class ExceededLimits(NamedTuple):
    """Limits that at least one workload exceeds.

    `idle` is True if any workload has an idle timeout, whether or not it is exceeded.
    """

    start: bool
    runtime: bool
    deadline: bool
    session: bool
    idle: bool


def end_overdue_workloads(now: datetime, context: SchedulerContext, idle: IdleTracker) -> int:
    """End workloads that exceed a time limit. Return the number of ended workloads."""
    due = ExceededLimits._make(prepared.fetch_one(DUE_LIMITS, [now - START_TIMEOUT, now, now, now]) or ())
    overdue = [
        *(_start_timeouts(now, context) if due.start else ()),
        *(_exceeded_runtimes(now) if due.runtime else ()),
        *(_missed_deadlines(now) if due.deadline else ()),
        *(_abandoned_sessions(now) if due.session else ()),
    ]
    if due.idle:
        overdue += _idle_timeouts(now, context, idle)
    else:
        idle.clear()
    if not overdue:
        return 0
    with fenced_transaction(context.held_lease):
        return _end_workloads(overdue, now, context.specs)


@dataclass(frozen=True, slots=True)
class OverdueWorkload:
    pk: uuid.UUID
    reason: str
    message: str
    final_phase: str = Phase.FAILED
    failure: Failure | None = None  # the failure that retry rules are matched against


def _start_timeouts(now: datetime, context: SchedulerContext) -> list[OverdueWorkload]:
    pks = [
        pk
        for pk in STARTING(now - START_TIMEOUT)
        if not context.start_messages.has_progressed_since(pk, now - PULL_TIMEOUT)
    ]
    shown = {
        pk: f": {context.start_messages.shown[pk][0]}" for pk in pks if pk in context.start_messages.shown
    }
    reasons = shown | _start_failures(pks)
    prefix = f"The pods did not start within {START_TIMEOUT.total_seconds():.0f} s"
    failures = _start_timeout_failures(pks, context.start_messages.pulling)
    return [
        OverdueWorkload(
            pk, "StartTimeout", f"{prefix}{reasons.get(pk, NO_KNOWN_FAILURE)}", failure=failures[pk]
        )
        for pk in pks
    ]


def _start_timeout_failures(
    workloads: Collection[uuid.UUID], pulling: Collection[uuid.UUID]
) -> dict[uuid.UUID, Failure]:
    if not workloads:
        return {}
    unresolved = RunImage.objects.filter(workload__in=workloads, run=F("workload__run"), digest="")
    without_image = {*pulling, *unresolved.values_list("workload_id", flat=True)}
    pods = Pod.objects.filter(workload__in=workloads, state=PodState.STARTING).order_by("-rank")
    # The pod with the lowest rank comes last and overwrites the others.
    nodes = dict(pods.values_list("workload_id", "node_id"))
    return {
        pk: Failure(IMAGE_PULL if pk in without_image else START_TIMEOUT_KIND, node=nodes.get(pk))
        for pk in workloads
    }


def _start_failures(workloads: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return a clause about each workload's lowest-ranked pod that could not be started, keyed by workload
    ID.
    """
    if not workloads:
        return {}
    pods = Pod.objects.filter(workload_id__in=workloads, state=PodState.STARTING).exclude(message="")
    rows = pods.order_by("workload_id", "-rank").values_list(
        "workload_id", "role", "index", "node__name", "message"
    )
    return {pk: f": pod {role}-{index} on {node} {message}" for pk, role, index, node, message in rows}


def _exceeded_runtimes(now: datetime) -> list[OverdueWorkload]:
    return [
        OverdueWorkload(
            pk,
            "MaxRuntimeExceeded",
            f"The workload ran longer than its maximum runtime of {format_duration(max_runtime or 0)}.",
            failure=Failure(TIMEOUT),
        )
        for pk, max_runtime, started_at in WITH_MAX_RUNTIME()
        if started_at and now >= started_at + timedelta(seconds=max_runtime or 0)
    ]


def _missed_deadlines(now: datetime) -> list[OverdueWorkload]:
    return [
        OverdueWorkload(pk, "DeadlineExceeded", f"The deadline was {deadline:%Y-%m-%d %H:%M:%S} UTC.")
        for pk, deadline in PAST_DEADLINE(now)
    ]


def _idle_timeouts(now: datetime, context: SchedulerContext, idle: IdleTracker) -> list[OverdueWorkload]:
    rows = list(WITH_IDLE_TIMEOUT())
    overdue, due = [], []
    checked = {row.pk for row in rows}
    last_port_sessions = _last_port_requests() if rows else {}
    for row in rows:
        interval = timedelta(seconds=max(1, (row.idle_timeout or 0) // 10))
        if now - idle.checked_at.get(row.pk, now - interval) >= interval:
            due.append(row)
    _measure_logs(due, now, context, idle)
    for row in rows:
        timeout = row.idle_timeout or 0
        _, since = idle.sizes.get(row.pk, (0, now))
        since = max(since, last_port_sessions.get(row.pk, since))
        if (now - since).total_seconds() >= timeout:
            text = f"No log output and no port requests for {timeout} s."
            overdue.append(OverdueWorkload(row.pk, "IdleTimeout", text, Phase.COMPLETED))
    idle.sizes = {pk: size for pk, size in idle.sizes.items() if pk in checked}
    idle.checked_at = {pk: at for pk, at in idle.checked_at.items() if pk in checked}
    return overdue


def _last_port_requests() -> dict[uuid.UUID, datetime]:
    links = PortLink.objects.filter(
        workload__phase=Phase.RUNNING, workload__idle_timeout__isnull=False, seen_at__isnull=False
    )
    rows = links.values("workload").annotate(last=Max("seen_at")).order_by()
    return {row["workload"]: row["last"] for row in rows}


def _abandoned_sessions(now: datetime) -> list[OverdueWorkload]:
    """Return sessions whose clients have stopped sending requests."""
    return [
        OverdueWorkload(pk, "IdleTimeout", f"The client sent no request for {timeout} s.", Phase.COMPLETED)
        for pk, seen_at, timeout in SESSIONS()
        if (now - seen_at).total_seconds() >= timeout
    ]


def _measure_logs(
    workloads: Collection[Workload], now: datetime, context: SchedulerContext, idle: IdleTracker
) -> None:
    assert_no_transaction()
    if not workloads:
        return
    pods: dict[uuid.UUID, list[Pod]] = defaultdict(list)
    running = Pod.objects.filter(workload__in=workloads, state=PodState.RUNNING)
    for pod in running.select_related("node__pool").order_by("pk"):
        pods[pod.workload_id].append(pod)
    for row in workloads:
        idle.checked_at[row.pk] = now
        try:
            size = sum(context.runtimes(pod.node.pool).tail_log(str(pod.pk), 1).size for pod in pods[row.pk])
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("the logs of %s cannot be read: %s", row.name, error)
            continue
        if idle.sizes.get(row.pk, (-1, now))[0] != size:
            idle.sizes[row.pk] = (size, now)


def _end_workloads(overdue: Iterable[OverdueWorkload], now: datetime, specs: SpecCache) -> int:
    by_pk: dict[uuid.UUID, OverdueWorkload] = {}
    for each in overdue:  # the first exceeded limit is reported as the reason
        by_pk.setdefault(each.pk, each)
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    locked = list(rows.filter(pk__in=by_pk).order_by("pk"))
    names = node_names(by_pk[row.pk].failure for row in locked)
    ended: list[PhaseTransition] = []

    def write(part: Sequence[Workload]) -> None:
        transitions = [_overdue_transition(row, by_pk[row.pk], now, specs, names) for row in part]
        ended.extend(
            change_phases_and_stop_pods(
                [transition for transition in transitions if transition is not None], now
            )
        )

    for row, reason in write_with_bisection(locked, write):
        log.error("workload %s exceeds a time limit and could not be ended: %s", row.pk, reason)
    return len(ended)


def _overdue_transition(
    row: Workload, overdue: OverdueWorkload, now: datetime, specs: SpecCache, names: Mapping[int, str]
) -> PhaseTransition | None:
    columns: dict[str, Any] = {}
    if overdue.failure is not None and row.phase in (Phase.STARTING, Phase.RUNNING):
        return transition_after_failure(
            row, specs.get(row), overdue.failure, overdue.reason, overdue.message, now, names
        )
    if row.phase in (Phase.STARTING, Phase.RUNNING):
        to, columns = Phase.STOPPING, {"next_phase": overdue.final_phase}
    elif row.phase in (Phase.PENDING, Phase.RESERVED):
        to = Phase.FAILED if overdue.final_phase == Phase.FAILED else Phase.CANCELLED
        columns = {"explanation": None}
    elif row.phase == Phase.SUSPENDED:
        to = Phase.CANCELLED
    else:
        return None
    return PhaseTransition(row, [row.phase], to, overdue.reason, overdue.message, columns=columns)
