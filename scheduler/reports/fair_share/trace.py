"""Explain the fair share of a department or project.

Quotas, usage and nodes are current. Queue requests come from the last cycle, so that not all workloads have
to be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from berth.core.amounts import MILLI
from berth.core.errors import NotFound
from pools.models import NodePool
from projects.acting import Acting
from projects.models import Department, Project
from scheduler.engine.fair_share.explain import divisions, divisions_of
from scheduler.engine.fair_share.trace import Division, Offer, Round
from scheduler.loop.observe.nodes import NodeCache, node_rows, pool_of
from scheduler.loop.observe.queues import Queues, queues_at
from scheduler.loop.observe.view import observe
from scheduler.models import QueueStanding
from scheduler.reports.explanations.pool_readiness import pools_below_threshold
from scheduler.reports.fair_share.explain import sentences
from scheduler.reports.visibility import EVERYTHING, Reader, own_departments, reader
from scheduler.reports.what_if.what_if_cache import SPECS

UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "Memory"}
ANOTHER = {"project": "another project", "department": "another department"}


@dataclass(frozen=True, slots=True)
class ShareTrace:
    """A queue's share of one resource, in GPUs, CPUs or MiB. `rounds` lists the rounds with the queue."""

    kind: str  # department | project
    name: str
    queue: str  # divided quantity: the department's share, or the pool
    resource: str
    total: float
    share: float
    explanation: list[str]
    rounds: list[dict[str, Any]]


def share_trace(
    *, acting: Acting, owner: Department | Project, pool: NodePool, now: datetime | None = None
) -> list[ShareTrace]:
    """Return a queue's traces, after its department's traces if the reader may see the department.

    Raises NotFound.
    """
    viewer, whole = reader(acting), own_departments(acting)
    if isinstance(owner, Department) and whole is not None and owner.pk not in whole:
        raise NotFound("You can see projects of this department, but not the department itself.")
    return _traces(owner, pool, viewer, whole, now)


def full_share_trace(owner: Department | Project, pool: NodePool) -> list[ShareTrace]:
    """Return the traces without redaction, for the admin site."""
    return _traces(owner, pool, EVERYTHING, None)


def _traces(
    owner: Department | Project,
    pool: NodePool,
    viewer: Reader,
    whole: set[int] | None,
    now: datetime | None = None,
) -> list[ShareTrace]:
    divisions_, queues = _divide(pool, now or timezone.now())
    path = _path(owner, queues, whole)
    return [
        _trace(division, queue, pool, queues, viewer, whole)
        for queue in path
        for division in divisions_
        if (mine := division.of(queue)) is not None and (division.resource == "gpu" or mine.requested > 0)
    ]


def _divide(pool: NodePool, now: datetime) -> tuple[list[Division], Queues]:
    standings = list(QueueStanding.objects.filter(pool=pool))
    if not standings:  # before the first cycle
        seen = observe(now, SPECS)
        return divisions(seen.snapshot, pool.name), seen.queues
    queues = queues_at(now, NodePool.objects.order_by("name"))
    requested = {name: row.requested for row in standings if (name := _queue_name(row, queues)) is not None}
    rows = node_rows(pool)
    nodes = NodeCache().describe(rows, {pool.pk: pool.name}, pools_below_threshold([pool], rows))
    return divisions_of(pool_of(pool, now), nodes, queues.queues, requested), queues


def _queue_name(row: QueueStanding, queues: Queues) -> str | None:
    if row.project_id is not None:
        return queues.projects.get(row.project_id)
    return None if row.department_id is None else queues.departments.get(row.department_id)


def _path(owner: Department | Project, queues: Queues, whole: set[int] | None) -> Iterator[str]:
    """Yield the queues to explain, the department first."""
    if isinstance(owner, Department):
        yield queues.departments[owner.pk]
        return
    if whole is None or owner.department_id in whole:
        yield queues.departments[owner.department_id]
    yield queues.projects[owner.pk]


def _trace(
    division: Division, queue: str, pool: NodePool, queues: Queues, viewer: Reader, whole: set[int] | None
) -> ShareTrace:
    owner, mine = queues.owners[queue], division.of(queue)
    assert mine is not None, "the queue takes part in the division"
    kind = "department" if owner.project_id is None else "project"

    def display_name(name: str) -> str:
        other = queues.owners[name]
        if other.project_id is None:
            visible = whole is None or other.department_id in whole
        else:
            visible = viewer.sees(other.project_id)
        return other.name if visible else ANOTHER[kind]

    return ShareTrace(
        kind=kind,
        name=owner.name,
        queue=pool.name if division.parent is None else queues.owners[division.parent].name,
        resource=division.resource,
        total=_units(division, division.total),
        share=_units(division, mine.share),
        explanation=sentences(division, queue, display_name),
        rounds=[
            _round(division, each, offer)
            for each in division.rounds
            for offer in each.offers
            if offer.queue == queue
        ],
    )


def _round(division: Division, round_: Round, offer: Offer) -> dict[str, Any]:
    """Return a round as JSON. In a remainder round, `offered` is the fraction lost to rounding."""
    return {
        "phase": round_.phase,
        "rank": round_.rank,
        "remaining": _units(division, round_.left),
        "weighted_share": float(offer.part),
        "weighted_share_without_usage": float(offer.plain),
        "offered": _units(division, float(offer.offered)),
        "granted": _units(division, offer.granted),
    }


def _units(division: Division, amount: float) -> float:
    return amount if division.resource == "memory_mib" else amount / MILLI
