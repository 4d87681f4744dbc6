"""Enforce time limits of workloads: start, runtime, deadline and idleness.

A gang whose pods cannot be started (a full disk, say) fails rather than hold its devices for ever. A run
longer than `max_runtime`, or beyond the `deadline`, is a failure and says so. An idle interactive
workload has simply ended. Idle means that no pod of it wrote to its log, which is what every runtime can
tell, and that nobody visited its ports. The clock of idleness starts anew when another scheduler takes over.
A session is idle when its client asks for nothing any more, whatever its pods write.
"""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from berth.db.lease import fenced
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Pod, PodState, PortLink, Session, Workload
from projects.services.workloads.moves import move
from scheduler.dispatch.gangs import ACTOR, stop_live_pods
from scheduler.points import outside_transactions
from scheduler.post import Post

log = logging.getLogger(__name__)

START_TIMEOUT = timedelta(minutes=5)
NO_REASON = "; the node took the order and has reported nothing since."
WAITING = (Phase.PENDING, Phase.RESERVED, Phase.SUSPENDED)


@dataclass(slots=True)
class Quiet:
    """How long the logs of idle-limited workloads have had the same size."""

    sizes: dict[uuid.UUID, tuple[int, datetime]] = field(default_factory=dict)
    looked_at: dict[uuid.UUID, datetime] = field(default_factory=dict)


def end_overdue(now: datetime, post: Post, quiet: Quiet) -> int:
    """Returns how many workloads were told to end."""
    overdue = [*_never_started(now), *_too_long(now), *_too_late(now), *_left_alone(now)]
    overdue += _idle(now, post, quiet)
    if not overdue:
        return 0
    with fenced(post.held):
        return sum(_end(found, now) for found in overdue)


@dataclass(frozen=True, slots=True)
class Overdue:
    pk: uuid.UUID
    reason: str
    message: str
    leads_to: str = Phase.FAILED


def _never_started(now: datetime) -> list[Overdue]:
    starting = Workload.objects.filter(phase=Phase.STARTING, since__lte=now - START_TIMEOUT)
    pks = list(starting.order_by("pk").values_list("pk", flat=True))
    reasons = _start_failures(pks)
    said = f"Its pods did not start within {START_TIMEOUT.total_seconds():.0f} s"
    return [Overdue(pk, "StartTimeout", f"{said}{reasons.get(pk, NO_REASON)}") for pk in pks]


def _start_failures(workloads: Collection[uuid.UUID]) -> dict[uuid.UUID, str]:
    """By workload: the first pod that could not be started, its node and the reason."""
    pods = Pod.objects.filter(workload_id__in=workloads, state=PodState.STARTING).exclude(message="")
    rows = pods.order_by("workload_id", "-rank").values_list(
        "workload_id", "role", "index", "node__name", "message"
    )
    return {pk: f": {role} {index} on {node} {message}" for pk, role, index, node, message in rows}


def _too_long(now: datetime) -> list[Overdue]:
    running = Workload.objects.filter(
        phase=Phase.RUNNING, max_runtime__isnull=False, started_at__isnull=False
    )
    return [
        Overdue(row.pk, "MaxRuntimeExceeded", f"It ran longer than its max_runtime of {row.max_runtime} s.")
        for row in running.only("pk", "max_runtime", "started_at").order_by("pk")
        if row.started_at and now >= row.started_at + timedelta(seconds=row.max_runtime or 0)
    ]


def _too_late(now: datetime) -> list[Overdue]:
    live = (*WAITING, Phase.STARTING, Phase.RUNNING)
    late = Workload.objects.filter(phase__in=live, deadline__lte=now).order_by("pk")
    return [
        Overdue(pk, "DeadlineExceeded", f"Its deadline was {deadline:%Y-%m-%d %H:%M:%S} UTC.")
        for pk, deadline in late.values_list("pk", "deadline")
    ]


def _idle(now: datetime, post: Post, quiet: Quiet) -> list[Overdue]:
    rows = Workload.objects.filter(phase=Phase.RUNNING, idle_timeout__isnull=False).order_by("pk")
    found, seen = [], set()
    visited = _visited()
    for row in rows.only("pk", "name", "idle_timeout"):
        patience = row.idle_timeout or 0
        seen.add(row.pk)
        pause = timedelta(seconds=max(1, patience // 10))
        if now - quiet.looked_at.get(row.pk, now - pause) >= pause:
            quiet.looked_at[row.pk] = now
            _listen(row, now, post, quiet)
        _, since = quiet.sizes.get(row.pk, (0, now))
        since = max(since, visited.get(row.pk, since))
        if (now - since).total_seconds() >= patience:
            text = f"Nothing was written to its logs for {patience} s, and nobody visited its ports."
            found.append(Overdue(row.pk, "IdleTimeout", text, Phase.COMPLETED))
    quiet.sizes = {pk: size for pk, size in quiet.sizes.items() if pk in seen}
    quiet.looked_at = {pk: at for pk, at in quiet.looked_at.items() if pk in seen}
    return found


def _visited() -> dict[uuid.UUID, datetime]:
    """When somebody was last at a port, of workloads whose idleness counts."""
    links = PortLink.objects.filter(
        workload__phase=Phase.RUNNING, workload__idle_timeout__isnull=False, seen_at__isnull=False
    )
    found = links.values("workload").annotate(last=Max("seen_at")).order_by()
    return {row["workload"]: row["last"] for row in found}


def _left_alone(now: datetime) -> list[Overdue]:
    """Sessions whose client asks for nothing any more."""
    live = (*WAITING, Phase.STARTING, Phase.RUNNING)
    rows = Session.objects.filter(workload__phase__in=live).order_by("pk")
    return [
        Overdue(pk, "IdleTimeout", f"Its client asked for nothing for {patience} s.", Phase.COMPLETED)
        for pk, seen_at, patience in rows.values_list("pk", "seen_at", "idle_timeout")
        if (now - seen_at).total_seconds() >= patience
    ]


def _listen(row: Workload, now: datetime, post: Post, quiet: Quiet) -> None:
    outside_transactions()
    pods = (
        Pod.objects.filter(workload=row, state=PodState.RUNNING).select_related("node__pool").order_by("pk")
    )
    try:
        size = sum(post.runtimes(pod.node.pool).tail_log(str(pod.pk), 1).size for pod in pods)
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("the logs of %s cannot be read: %s", row.name, error)
        return
    if quiet.sizes.get(row.pk, (-1, now))[0] != size:
        quiet.sizes[row.pk] = (size, now)


def _end(found: Overdue, now: datetime) -> bool:
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    row = rows.filter(pk=found.pk).first()
    if row is None:
        return False
    columns: dict[str, Any] = {}
    if row.phase in (Phase.STARTING, Phase.RUNNING):
        to, columns = Phase.STOPPING, {"next_phase": found.leads_to}
        stop_live_pods(row, found.reason, now)
    elif row.phase in (Phase.PENDING, Phase.RESERVED):
        to = Phase.FAILED if found.leads_to == Phase.FAILED else Phase.CANCELLED
        columns = {"explanation": None}
    elif row.phase == Phase.SUSPENDED:
        to = Phase.CANCELLED
    else:
        return False
    return move(
        row,
        expected=[row.phase],
        to=to,
        reason=found.reason,
        message=found.message,
        actor=ACTOR,
        now=now,
        **columns,
    )
