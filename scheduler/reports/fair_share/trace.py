"""Explain the fair share of a department or project.

Quotas, use and nodes as they are now; what each queue asks for as the last cycle wrote it down, so that
nobody has to look at all workloads to answer.
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
from scheduler.reports.explanations.pool_readiness import openings
from scheduler.reports.fair_share.explain import sentences
from scheduler.reports.visibility import EVERYTHING, Reader, own_departments, reader
from scheduler.reports.what_if.what_if_cache import SPECS

UNITS = {"gpu": "GPUs", "cpu": "CPUs", "memory_mib": "Memory"}
ANOTHER = {"project": "another project", "department": "another department"}


@dataclass(frozen=True, slots=True)
class Chapter:
    """One resource of one queue. Amounts are GPUs, CPUs and MiB; `rounds` are the queue's own."""

    kind: str  # department | project
    name: str
    queue: str  # what is divided: the department's share, or the pool
    resource: str
    total: float
    share: float
    explanation: list[str]
    rounds: list[dict[str, Any]]


def share_story(
    *, acting: Acting, owner: Department | Project, pool: NodePool, now: datetime | None = None
) -> list[Chapter]:
    """Its department first, as far as the reader sees that whole. Raises NotFound."""
    eyes, whole = reader(acting), own_departments(acting)
    if isinstance(owner, Department) and whole is not None and owner.pk not in whole:
        raise NotFound("You see single projects of this department, not how it stands itself.")
    return _story(owner, pool, eyes, whole, now)


def whole_story(owner: Department | Project, pool: NodePool) -> list[Chapter]:
    """The same for somebody who sees everything, as the admin site's readers do."""
    return _story(owner, pool, EVERYTHING, None)


def _story(
    owner: Department | Project,
    pool: NodePool,
    eyes: Reader,
    whole: set[int] | None,
    now: datetime | None = None,
) -> list[Chapter]:
    story, queues = _divided(pool, now or timezone.now())
    path = _path(owner, queues, whole)
    return [
        _chapter(division, queue, pool, queues, eyes, whole)
        for queue in path
        for division in story
        if (found := division.of(queue)) is not None and (division.resource == "gpu" or found.requested > 0)
    ]


def _divided(pool: NodePool, now: datetime) -> tuple[list[Division], Queues]:
    standings = list(QueueStanding.objects.filter(pool=pool))
    if not standings:  # no cycle has been yet
        seen = observe(now, SPECS)
        return divisions(seen.snapshot, pool.name), seen.queues
    queues = queues_at(now, NodePool.objects.order_by("name"))
    requested = {name: row.requested for row in standings if (name := _queue(row, queues)) is not None}
    rows = node_rows(pool)
    nodes = NodeCache().describe(rows, {pool.pk: pool.name}, openings([pool], rows))
    return divisions_of(pool_of(pool, now), nodes, queues.queues, requested), queues


def _queue(row: QueueStanding, queues: Queues) -> str | None:
    if row.project_id is not None:
        return queues.projects.get(row.project_id)
    return None if row.department_id is None else queues.departments.get(row.department_id)


def _path(owner: Department | Project, queues: Queues, whole: set[int] | None) -> Iterator[str]:
    """The queues to tell of, the outer one first."""
    if isinstance(owner, Department):
        yield queues.departments[owner.pk]
        return
    if whole is None or owner.department_id in whole:
        yield queues.departments[owner.department_id]
    yield queues.projects[owner.pk]


def _chapter(
    division: Division, queue: str, pool: NodePool, queues: Queues, eyes: Reader, whole: set[int] | None
) -> Chapter:
    owner, mine = queues.owners[queue], division.of(queue)
    assert mine is not None, "only its own divisions are told of"
    kind = "department" if owner.project_id is None else "project"

    def called(name: str) -> str:
        other = queues.owners[name]
        if other.project_id is None:
            known = whole is None or other.department_id in whole
        else:
            known = eyes.sees(other.project_id)
        return other.name if known else ANOTHER[kind]

    return Chapter(
        kind=kind,
        name=owner.name,
        queue=pool.name if division.parent is None else queues.owners[division.parent].name,
        resource=division.resource,
        total=_units(division, division.total),
        share=_units(division, mine.share),
        explanation=sentences(division, queue, called),
        rounds=[
            _round(division, each, offer)
            for each in division.rounds
            for offer in each.offers
            if offer.queue == queue
        ],
    )


def _round(division: Division, found: Round, offer: Offer) -> dict[str, Any]:
    """Of a remainder, `offered` is what was cut off of its part."""
    return {
        "phase": found.phase,
        "rank": found.rank,
        "remaining": _units(division, found.left),
        "weighted_share": float(offer.part),
        "weighted_share_without_usage": float(offer.plain),
        "offered": _units(division, float(offer.offered)),
        "granted": _units(division, offer.granted),
    }


def _units(division: Division, amount: float) -> float:
    return amount if division.resource == "memory_mib" else amount / MILLI
