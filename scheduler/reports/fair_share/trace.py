"""Explain how the fair share of a department or project was computed.

Quotas, usage, nodes and the number of pending GPUs are current. All other requests come from the last cycle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.errors import NotFound
from berth.core.values.amounts import MILLI, RESOURCES
from pools.models import NodePool
from projects.actor import Actor
from projects.models import Department, Project
from projects.models.tenants import Tenant
from scheduler.engine.fair_share.explain import divide_requests, divisions
from scheduler.engine.fair_share.trace import Division, Offer, Round
from scheduler.engine.layout.quota_groups import remaining_pool_quota
from scheduler.engine.model import Queue
from scheduler.loop.observe.nodes import NodeCache, engine_pool, load_node_rows
from scheduler.loop.observe.queues import Queues, load_queues
from scheduler.loop.observe.view import observe
from scheduler.models import QueueStatus
from scheduler.reports.explanations.pool_readiness import pools_below_threshold
from scheduler.reports.fair_share.explain import explain_share, split_request
from scheduler.reports.queues.group_quotas import allocated_amounts_in_other_pools
from scheduler.reports.queues.pending_gpus import pending_gpus_by_project
from scheduler.reports.visibility import UNRESTRICTED, Viewer, viewer_for, visible_department_ids
from scheduler.reports.what_if.what_if_cache import SPEC_CACHE

GPU = 0
UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "Memory"}
# Requested amounts by queue, resource and state, such as pending.
RequestParts = Mapping[str, Mapping[str, Mapping[str, int]]]
HIDDEN_NAMES = {"project": "another project", "department": "another department"}


@dataclass(frozen=True, slots=True)
class ShareTrace:
    """Step-by-step computation of a queue's share of one resource, in GPUs, CPUs or MiB."""

    kind: str  # kind of queue: "department" or "project"
    name: str
    queue: str  # the pool or department whose resources are divided
    resource: str
    total: float
    share: float
    explanation: list[str]
    rounds: list[dict[str, Any]]


def share_trace(
    *, actor: Actor, owner: Tenant, pool: NodePool, now: datetime | None = None
) -> list[ShareTrace]:
    """Return the traces of a department or project in a pool.

    For a project, the traces of its department come first if the user may see the department. Raises NotFound
    if `owner` is a department that the user may not see.
    """
    viewer, visible_departments = viewer_for(actor), visible_department_ids(actor)
    if (
        isinstance(owner, Department)
        and visible_departments is not None
        and owner.pk not in visible_departments
    ):
        raise NotFound(
            f"You can see projects of department {owner.name}, but not the department itself. "
            "Ask a department admin for a role."
        )
    return _build_traces(owner, pool, viewer, visible_departments, now)


def unredacted_share_traces(owner: Tenant, pool: NodePool) -> list[ShareTrace]:
    """Return the unredacted traces, for the admin site."""
    return _build_traces(owner, pool, UNRESTRICTED, None)


def _build_traces(
    owner: Tenant,
    pool: NodePool,
    viewer: Viewer,
    visible_departments: set[int] | None,
    now: datetime | None = None,
) -> list[ShareTrace]:
    statuses = list(QueueStatus.objects.filter(pool=pool))
    pool_divisions, queues = _divide_pool(pool, statuses, now or timezone.now())
    path = list(_queues_to_explain(owner, queues, visible_departments))
    parts = _request_parts(path, statuses, pool, queues)
    return [
        _build_trace(division, queue, pool, queues, viewer, visible_departments, parts)
        for queue in path
        for division in pool_divisions
        if (mine := division.queue_input(queue)) is not None
        and (division.resource == "gpu" or mine.requested > 0)
    ]


def _divide_pool(
    pool: NodePool, statuses: Sequence[QueueStatus], now: datetime
) -> tuple[list[Division], Queues]:
    if not statuses:  # no cycle has run yet
        view = observe(now, SPEC_CACHE)
        return divisions(view.snapshot, pool.name), view.queues
    queues = load_queues(now, NodePool.objects.order_by("name"))
    requested = {name: row.requested for row in statuses if (name := _queue_name(row, queues)) is not None}
    rows = load_node_rows(pool)
    nodes = NodeCache().to_engine_nodes(rows, {pool.pk: pool.name}, pools_below_threshold([pool], rows))
    remaining = _with_remaining_quotas(queues, pool)
    return divide_requests(engine_pool(pool, now), nodes, remaining, requested), queues


def _with_remaining_quotas(queues: Queues, pool: NodePool) -> list[Queue]:
    result = {queue.name: queue for queue in queues.queues}
    for (_, (department, project)), allocated in allocated_amounts_in_other_pools([pool]).items():
        name = queues.projects.get(project or 0) or queues.departments.get(department or 0)
        pool_quota = result[name].pool_quotas.get(pool.name) if name in result else None
        if name is not None and pool_quota is not None and pool_quota.group:
            remaining = remaining_pool_quota(pool_quota, allocated)
            pool_quotas = {**result[name].pool_quotas, pool.name: remaining}
            result[name] = replace(result[name], pool_quotas=pool_quotas)
    return list(result.values())


def _queue_name(row: QueueStatus, queues: Queues) -> str | None:
    if row.project_id is not None:
        return queues.projects.get(row.project_id)
    return None if row.department_id is None else queues.departments.get(row.department_id)


def _queues_to_explain(owner: Tenant, queues: Queues, visible_departments: set[int] | None) -> Iterator[str]:
    """Yield the queue names to explain, the department first."""
    if isinstance(owner, Department):
        yield queues.departments[owner.pk]
        return
    if visible_departments is None or owner.department_id in visible_departments:
        yield queues.departments[owner.department_id]
    yield queues.projects[owner.pk]


def _request_parts(
    path: Sequence[str], statuses: Sequence[QueueStatus], pool: NodePool, queues: Queues
) -> RequestParts:
    """Split each queue's request into parts, keyed by queue and resource.

    The pending GPUs are current, and all other parts come from the last cycle.
    """
    stored = {_queue_name(row, queues): row for row in statuses}
    pending = pending_gpus_by_project([pool]) if stored else {}
    result: dict[str, dict[str, dict[str, int]]] = {}
    for queue in path:
        if (row := stored.get(queue)) is None:
            continue
        inner = [row.project_id] if row.project_id is not None else _project_ids(row.department_id)
        gpus = sum(pending.get(project, 0) for project in inner)
        result[queue] = {
            resource: split_request(
                row.requested[kind], row.allocated[kind], row.reserved[kind], gpus if kind == GPU else None
            )
            for kind, resource in enumerate(RESOURCES)
        }
    return result


def _project_ids(department: int | None) -> list[int]:
    return list(Project.objects.filter(department=department).values_list("pk", flat=True))


def _build_trace(
    division: Division,
    queue: str,
    pool: NodePool,
    queues: Queues,
    viewer: Viewer,
    visible_departments: set[int] | None,
    parts: RequestParts,
) -> ShareTrace:
    owner, mine = queues.owners[queue], division.queue_input(queue)
    assert mine is not None, "the queue takes part in the division"
    kind = "department" if owner.project_id is None else "project"

    def display_name(name: str) -> str:
        other = queues.owners[name]
        if other.project_id is None:
            visible = visible_departments is None or other.department_id in visible_departments
        else:
            visible = viewer.can_see(other.project_id)
        return other.name if visible else HIDDEN_NAMES[kind]

    return ShareTrace(
        kind=kind,
        name=owner.name,
        queue=pool.name if division.parent is None else queues.owners[division.parent].name,
        resource=division.resource,
        total=_to_api_units(division, division.total),
        share=_to_api_units(division, mine.share),
        explanation=explain_share(
            division,
            queue,
            display_name,
            parts.get(queue, {}).get(division.resource),
            name=owner.name,
            kind=kind,
        ),
        rounds=[
            _document_for_round(division, round_, offer)
            for round_ in division.rounds
            for offer in round_.offers
            if offer.queue == queue
        ],
    )


def _document_for_round(division: Division, round_: Round, offer: Offer) -> dict[str, Any]:
    return {
        "phase": round_.phase,
        "rank": round_.rank,
        "remaining": _to_api_units(division, round_.left),
        "weighted_share": float(offer.part),
        "weighted_share_without_usage": float(offer.plain),
        "offered": _to_api_units(division, float(offer.offered)),
        "granted": _to_api_units(division, offer.granted),
    }


def _to_api_units(division: Division, amount: float) -> float:
    return amount if division.resource == "memory_mib" else amount / MILLI
