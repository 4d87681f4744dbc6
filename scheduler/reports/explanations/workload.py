"""Explain a workload's state: its pending reasons, queue position and queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from berth.core.values.amounts import MILLI, RESOURCES
from pools.models import NodePool
from projects.actor import Actor
from projects.models import Phase, Quota, Workload
from projects.models.tenants import applies_to_any
from projects.queries.idle_rules import idle_status
from projects.services.arrays.waiting import explain_held_task
from projects.services.dependencies import current_waiting_message
from projects.services.workloads.pending.bursting import describe_bursting
from scheduler.engine.plan import Reason
from scheduler.models import Eviction, QueueStatus
from scheduler.reports import selectors
from scheduler.reports.explanations.awaited_ends import AwaitedEnd, awaited_ends
from scheduler.reports.explanations.boots import expected_boot_end, reserved_nodes_ready_time
from scheduler.reports.explanations.pending_history import PendingReason, pending_history
from scheduler.reports.fair_share.trace import share_trace
from scheduler.reports.queues.group_quotas import (
    AllocatedOutside,
    allocated_amounts_in_other_pools,
    remaining_bound,
)
from scheduler.reports.visibility import Viewer, viewer_for

MOST_EVICTIONS = 20
PENDING_PHASES = ("pending", "reserved")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a workload's state.

    Amounts in `queue` are in GPUs, CPUs and MiB, whereas numbers in `blockers` are in milli-GPU, milli-CPU
    and MiB.
    """

    phase: str
    reason: str
    message: str
    queue_position: int | None
    ordering: list[str]
    expected_start: datetime | None
    expected_start_reason: str
    expected_start_after: list[AwaitedEnd]
    burst: str  # sentence about the pool that `burst_after` delays, or empty
    idle: str  # warning about idle GPUs, or the rules that apply
    blockers: list[dict[str, Any]]
    queue: dict[str, Any]
    evictions: list[Eviction]
    explained_at: datetime | None
    cycle: int | None
    pending_history: list[PendingReason]


def explain(actor: Actor, workload: Workload, now: datetime | None = None) -> Explanation:
    """Explain the state of a workload that `actor` may see."""
    stored, now = (
        (workload.explanation or {}) if workload.phase in PENDING_PHASES else {},
        now or timezone.now(),
    )
    message = workload.message
    if workload.held:
        waiting = explain_held_task(workload)
        message = waiting.message
        stored = {"blockers": [{"reason": workload.reason, "message": message, "numbers": waiting.numbers}]}
    elif awaited := _dependency_message(actor, workload, stored):
        message = awaited
        first, *others = stored["blockers"]
        stored = {**stored, "blockers": [{**first, "message": message}, *others]}
    starts, because = expected_start(workload, now) if stored and not workload.held else (None, "")
    return Explanation(
        phase=workload.phase,
        reason=workload.reason,
        message=message,
        queue_position=stored.get("queue_position") if workload.phase == Phase.PENDING else None,
        ordering=stored.get("ordering", []),
        expected_start=starts,
        expected_start_reason=because,
        expected_start_after=expected_start_after(viewer_for(actor), stored, starts),
        burst=describe_bursting(workload, now) if workload.phase in PENDING_PHASES else "",
        idle=idle_status(workload).sentence,
        blockers=[_with_remaining_seconds(now, blocker) for blocker in stored.get("blockers", [])],
        queue=_queue_documents(workload),
        evictions=list(
            selectors.evictions(actor).filter(Q(workload_id=workload.pk) | Q(preemptor_id=workload.pk))[
                :MOST_EVICTIONS
            ]
        ),
        explained_at=now if workload.held else workload.explained_at if stored else None,
        cycle=stored.get("cycle"),
        pending_history=pending_history(workload),
    )


def expected_start(workload: Workload, now: datetime) -> tuple[datetime | None, str]:
    """Return when a pending workload is expected to start, and the assumptions behind the estimate.

    If the time is unknown, return None and the reason.
    """
    if workload.phase == Phase.RESERVED:
        start, because = reserved_nodes_ready_time(workload.pk, now)
        if because:
            return start, because
    stored = workload.explanation or {}
    if start := stored.get("expected_start"):
        return parse_datetime(start), stored.get("expected_start_reason", "")
    blockers = stored.get("blockers", [])
    if blockers and blockers[0]["reason"] == Reason.WAITING_FOR_SCALE_UP and stored.get("pool"):
        start, because = expected_boot_end(stored["pool"], now)
        if start is not None:
            return start, because
    return None, stored.get("expected_start_reason", "")


def expected_start_after(
    viewer: Viewer, stored: Mapping[str, Any], start: datetime | None
) -> list[AwaitedEnd]:
    """Return the workloads that must end before the expected start, or none if the start depends on booting
    nodes.
    """
    ends, estimate = stored.get("expected_start_after"), stored.get("expected_start")
    if not ends or start is None or not estimate or parse_datetime(estimate) != start:
        return []
    return awaited_ends(viewer, ends)


def _dependency_message(actor: Actor, workload: Workload, stored: Mapping[str, Any]) -> str | None:
    if not stored or workload.reason != Reason.DEPENDENCY_NOT_MET:
        return None
    return current_waiting_message(actor, workload)


def _with_remaining_seconds(now: datetime, blocker: dict[str, Any]) -> dict[str, Any]:
    numbers = blocker["numbers"]
    if numbers.get("until") is None or "seconds" not in numbers:
        return blocker
    return {**blocker, "numbers": {**numbers, "seconds": max(0, numbers["until"] - int(now.timestamp()))}}


def with_share_explanations(actor: Actor, workload: Workload, queues: Mapping[str, Any]) -> dict[str, Any]:
    """Add to each queue the share explanations that the user may see, by resource."""
    pool = NodePool.objects.filter(name=queues["project"]["pool"]).first()
    explanations: dict[str, dict[str, list[str]]] = {kind: {} for kind in queues}
    for trace in [] if pool is None else share_trace(actor=actor, owner=workload.project, pool=pool):
        explanations[trace.kind][trace.resource] = trace.explanation
    return {kind: {**status, "how": explanations[kind]} for kind, status in queues.items()}


def _queue_documents(workload: Workload) -> dict[str, Any]:
    project = workload.project
    pool = workload.pool or NodePool.objects.filter(name=workload.pools[0]).first()
    pool_name = workload.pools[0] if pool is None else pool.name
    owners = {"project": Q(project=project), "department": Q(department=project.department_id)}
    names = {"project": project.name, "department": project.department.name}
    outside = allocated_amounts_in_other_pools([pool] if pool else [])
    shown: dict[str, Any] = {}
    for kind, owner in owners.items():
        quota = Quota.objects.filter(owner, applies_to_any([pool] if pool else [])).first()
        status = QueueStatus.objects.filter(owner, pool__name=pool_name).first()
        shown[kind] = {
            "name": names[kind],
            "pool": pool_name,
            **_quota_document(quota, outside),
            **_status_document(status),
        }
    return shown


def _quota_document(row: Quota | None, outside: AllocatedOutside) -> dict[str, Any]:
    """Return the quota and limit, minus allocations in other pools of a quota group."""
    if row is None:
        return {"quota": {"gpu": 0, "cpu": None, "memory_mib": None}, "limit": dict.fromkeys(RESOURCES)}
    return {
        "quota": to_api_units([*remaining_bound(row, outside)]),
        "limit": to_api_units([*remaining_bound(row, outside, "limit_")]),
    }


def _status_document(row: QueueStatus | None) -> dict[str, Any]:
    if row is None:
        return dict.fromkeys(("share", "allocated", "reserved", "requested", "usage"))
    return {
        "share": to_api_units(row.share),
        "allocated": to_api_units(row.allocated),
        "reserved": to_api_units(row.reserved),
        "requested": to_api_units(row.requested),
        "usage": dict(zip(RESOURCES, row.usage, strict=True)),
    }


def to_api_units(values: Sequence[int | None]) -> Mapping[str, float | None]:
    gpu, cpu, memory = values
    return {"gpu": _from_milli(gpu), "cpu": _from_milli(cpu), "memory_mib": memory}


def _from_milli(milli: int | None) -> float | None:
    if milli is None:
        return None
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI
