"""Enforce the time limits of workloads: start timeout, maximum runtime, deadline and idle timeout.

A gang whose pods cannot be started (because a disk is full, say) fails, so that it does not block its
devices. A workload also fails if it runs longer than `max_runtime` or past its `deadline`.

An idle interactive workload completes. It is idle while its pods write nothing to their logs, which every
runtime can report, and its ports have no visitors. The idle clock restarts when another scheduler takes over.
A session is idle once its client stops sending requests, even if its pods write to their logs.
"""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from berth.db.crash_points import assert_no_transaction
from berth.db.lease import fenced_transaction
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Pod, PodState, PortLink, Session, Workload
from projects.services.workloads.moves import move
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.gangs import ACTOR, stop_live_pods

log = logging.getLogger(__name__)

START_TIMEOUT = timedelta(minutes=5)
PULL_TIMEOUT = timedelta(minutes=15)  # time without progress after which the pull of an image has failed
NO_KNOWN_FAILURE = "; the node accepted the pods but has reported nothing since."
PENDING_PHASES = (Phase.PENDING, Phase.RESERVED, Phase.SUSPENDED)


@dataclass(slots=True)
class IdleTracker:
    """Log size of each workload with an idle timeout, and the time at which it last changed."""

    sizes: dict[uuid.UUID, tuple[int, datetime]] = field(default_factory=dict)
    checked_at: dict[uuid.UUID, datetime] = field(default_factory=dict)


def end_overdue(now: datetime, context: SchedulerContext, idle: IdleTracker) -> int:
    """End workloads that exceed a time limit. Return the number of ended workloads."""
    overdue = [
        *_start_timeouts(now, context),
        *_exceeded_runtimes(now),
        *_missed_deadlines(now),
        *_abandoned_sessions(now),
    ]
    overdue += _idle_timeouts(now, context, idle)
    if not overdue:
        return 0
    with fenced_transaction(context.held_lease):
        return sum(_end_workload(workload, now) for workload in overdue)


@dataclass(frozen=True, slots=True)
class OverdueWorkload:
    pk: uuid.UUID
    reason: str
    message: str
    final_phase: str = Phase.FAILED


def _start_timeouts(now: datetime, context: SchedulerContext) -> list[OverdueWorkload]:
    """Return the workloads that did not start in time. A pull that makes progress has more time."""
    starting = Workload.objects.filter(phase=Phase.STARTING, since__lte=now - START_TIMEOUT)
    pks = [
        pk
        for pk in starting.order_by("pk").values_list("pk", flat=True)
        if not context.start_messages.progressed_since(pk, now - PULL_TIMEOUT)
    ]
    shown = {
        pk: f": {context.start_messages.shown[pk][0]}" for pk in pks if pk in context.start_messages.shown
    }
    reasons = shown | _start_failures(pks)
    prefix = f"The pods did not start within {START_TIMEOUT.total_seconds():.0f} s"
    return [OverdueWorkload(pk, "StartTimeout", f"{prefix}{reasons.get(pk, NO_KNOWN_FAILURE)}") for pk in pks]


def _start_failures(workloads: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return, by workload, the start failure of the lowest-ranked pod that has one."""
    pods = Pod.objects.filter(workload_id__in=workloads, state=PodState.STARTING).exclude(message="")
    rows = pods.order_by("workload_id", "-rank").values_list(
        "workload_id", "role", "index", "node__name", "message"
    )
    return {pk: f": {role} {index} on {node} {message}" for pk, role, index, node, message in rows}


def _exceeded_runtimes(now: datetime) -> list[OverdueWorkload]:
    running = Workload.objects.filter(
        phase=Phase.RUNNING, max_runtime__isnull=False, started_at__isnull=False
    )
    return [
        OverdueWorkload(
            row.pk,
            "MaxRuntimeExceeded",
            f"The workload ran longer than its max_runtime of {row.max_runtime} s.",
        )
        for row in running.only("pk", "max_runtime", "started_at").order_by("pk")
        if row.started_at and now >= row.started_at + timedelta(seconds=row.max_runtime or 0)
    ]


def _missed_deadlines(now: datetime) -> list[OverdueWorkload]:
    live = (*PENDING_PHASES, Phase.STARTING, Phase.RUNNING)
    late = Workload.objects.filter(phase__in=live, deadline__lte=now).order_by("pk")
    return [
        OverdueWorkload(pk, "DeadlineExceeded", f"The deadline was {deadline:%Y-%m-%d %H:%M:%S} UTC.")
        for pk, deadline in late.values_list("pk", "deadline")
    ]


def _idle_timeouts(now: datetime, context: SchedulerContext, idle: IdleTracker) -> list[OverdueWorkload]:
    running = Workload.objects.filter(phase=Phase.RUNNING, idle_timeout__isnull=False).order_by("pk")
    rows = list(running.only("pk", "name", "idle_timeout"))
    overdue, checked = [], set()
    last_visits = _last_visits() if rows else {}
    for row in rows:
        timeout = row.idle_timeout or 0
        checked.add(row.pk)
        interval = timedelta(seconds=max(1, timeout // 10))
        if now - idle.checked_at.get(row.pk, now - interval) >= interval:
            idle.checked_at[row.pk] = now
            _measure_logs(row, now, context, idle)
        _, since = idle.sizes.get(row.pk, (0, now))
        since = max(since, last_visits.get(row.pk, since))
        if (now - since).total_seconds() >= timeout:
            text = f"No log output and no port visits for {timeout} s."
            overdue.append(OverdueWorkload(row.pk, "IdleTimeout", text, Phase.COMPLETED))
    idle.sizes = {pk: size for pk, size in idle.sizes.items() if pk in checked}
    idle.checked_at = {pk: at for pk, at in idle.checked_at.items() if pk in checked}
    return overdue


def _last_visits() -> dict[uuid.UUID, datetime]:
    """Return the time of the last port visit to each workload with an idle timeout."""
    links = PortLink.objects.filter(
        workload__phase=Phase.RUNNING, workload__idle_timeout__isnull=False, seen_at__isnull=False
    )
    rows = links.values("workload").annotate(last=Max("seen_at")).order_by()
    return {row["workload"]: row["last"] for row in rows}


def _abandoned_sessions(now: datetime) -> list[OverdueWorkload]:
    """Return sessions whose clients have stopped sending requests."""
    live = (*PENDING_PHASES, Phase.STARTING, Phase.RUNNING)
    rows = Session.objects.filter(workload__phase__in=live).order_by("pk")
    return [
        OverdueWorkload(pk, "IdleTimeout", f"The client sent no request for {timeout} s.", Phase.COMPLETED)
        for pk, seen_at, timeout in rows.values_list("pk", "seen_at", "idle_timeout")
        if (now - seen_at).total_seconds() >= timeout
    ]


def _measure_logs(row: Workload, now: datetime, context: SchedulerContext, idle: IdleTracker) -> None:
    assert_no_transaction()
    pods = (
        Pod.objects.filter(workload=row, state=PodState.RUNNING).select_related("node__pool").order_by("pk")
    )
    try:
        size = sum(context.runtimes(pod.node.pool).tail_log(str(pod.pk), 1).size for pod in pods)
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("the logs of %s cannot be read: %s", row.name, error)
        return
    if idle.sizes.get(row.pk, (-1, now))[0] != size:
        idle.sizes[row.pk] = (size, now)


def _end_workload(overdue: OverdueWorkload, now: datetime) -> bool:
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    row = rows.filter(pk=overdue.pk).first()
    if row is None:
        return False
    columns: dict[str, Any] = {}
    if row.phase in (Phase.STARTING, Phase.RUNNING):
        to, columns = Phase.STOPPING, {"next_phase": overdue.final_phase}
    elif row.phase in (Phase.PENDING, Phase.RESERVED):
        to = Phase.FAILED if overdue.final_phase == Phase.FAILED else Phase.CANCELLED
        columns = {"explanation": None}
    elif row.phase == Phase.SUSPENDED:
        to = Phase.CANCELLED
    else:
        return False
    moved = move(
        row,
        expected=[row.phase],
        to=to,
        reason=overdue.reason,
        message=overdue.message,
        actor=ACTOR,
        now=now,
        **columns,
    )
    if to == Phase.STOPPING:
        stop_live_pods([row.pk], now)
    return moved
