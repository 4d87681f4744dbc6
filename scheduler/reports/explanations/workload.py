"""Explain a workload by its reasons, queue position and queues."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime

from berth.core.amounts import MILLI, RESOURCES
from pools.models import NodePool
from projects.acting import Acting
from projects.models import Quota, Workload
from scheduler.models import Eviction, QueueStanding
from scheduler.reports import selectors
from scheduler.reports.explanations.pending_history import PendingReason, pending_history
from scheduler.reports.fair_share.trace import share_trace

MOST_EVICTIONS = 20
WAITING = ("pending", "reserved")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a workload's state.

    Amounts in `queue` are GPUs, CPUs and MiB; numbers in `blockers` are engine units (thousandths, MiB).
    """

    phase: str
    reason: str
    message: str
    queue_position: int | None
    ordering: list[str]
    expected_start: datetime | None
    expected_start_reason: str
    blockers: list[dict[str, Any]]
    queue: dict[str, Any]
    evictions: list[Eviction]
    explained_at: datetime | None
    cycle: int | None
    pending_history: list[PendingReason]


def explain(acting: Acting, workload: Workload) -> Explanation:
    """Explain a workload that `acting` may see. Results of the last cycle are shown only if it is pending."""
    stored = (workload.explanation or {}) if workload.phase in WAITING else {}
    starts = stored.get("expected_start")
    return Explanation(
        phase=workload.phase,
        reason=workload.reason,
        message=workload.message,
        queue_position=stored.get("queue_position"),
        ordering=stored.get("ordering", []),
        expected_start=parse_datetime(starts) if starts else None,
        expected_start_reason=stored.get("expected_start_reason", ""),
        blockers=stored.get("blockers", []),
        queue=_standings(workload),
        evictions=list(
            selectors.evictions(acting).filter(Q(workload_id=workload.pk) | Q(preemptor_id=workload.pk))[
                :MOST_EVICTIONS
            ]
        ),
        explained_at=workload.explained_at if stored else None,
        cycle=stored.get("cycle"),
        pending_history=pending_history(workload),
    )


def with_share_explanations(acting: Acting, workload: Workload, queues: Mapping[str, Any]) -> dict[str, Any]:
    """Return the queues, each with the visible explanations of its share by resource."""
    pool = NodePool.objects.filter(name=queues["project"]["pool"]).first()
    explanations: dict[str, dict[str, list[str]]] = {kind: {} for kind in queues}
    for each in [] if pool is None else share_trace(acting=acting, owner=workload.project, pool=pool):
        explanations[each.kind][each.resource] = each.explanation
    return {kind: {**standing, "how": explanations[kind]} for kind, standing in queues.items()}


def _standings(workload: Workload) -> dict[str, Any]:
    """Return the standings of the workload's project and department in its pool, or in its first pool."""
    project = workload.project
    pool = workload.pool.name if workload.pool else workload.pools[0]
    owners = {"project": Q(project=project), "department": Q(department=project.department_id)}
    names = {"project": project.name, "department": project.department.name}
    shown: dict[str, Any] = {}
    for kind, owner in owners.items():
        quota = Quota.objects.filter(owner, pool__name=pool).first()
        standing = QueueStanding.objects.filter(owner, pool__name=pool).first()
        shown[kind] = {"name": names[kind], "pool": pool, **_quota(quota), **_standing(standing)}
    return shown


def _quota(row: Quota | None) -> dict[str, Any]:
    if row is None:
        return {"quota": {"gpu": 0, "cpu": None, "memory_mib": None}, "limit": dict.fromkeys(RESOURCES)}
    return {
        "quota": in_api_units([row.gpu_milli, row.cpu_milli, row.memory_mib]),
        "limit": in_api_units([row.limit_gpu_milli, row.limit_cpu_milli, row.limit_memory_mib]),
    }


def _standing(row: QueueStanding | None) -> dict[str, Any]:
    if row is None:
        return {"share": None, "allocated": None, "requested": None, "usage": None}
    return {
        "share": in_api_units(row.share),
        "allocated": in_api_units(row.allocated),
        "requested": in_api_units(row.requested),
        "usage": dict(zip(RESOURCES, row.usage, strict=True)),
    }


def in_api_units(values: list[int] | list[int | None] | tuple[int, int, int]) -> Mapping[str, float | None]:
    gpu, cpu, memory = values
    return {"gpu": _from_milli(gpu), "cpu": _from_milli(cpu), "memory_mib": memory}


def _from_milli(milli: int | None) -> float | None:
    if milli is None:
        return None
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI
