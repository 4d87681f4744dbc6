"""Filter choices of the queue page, with the number of workloads for each."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from pools.models import NodePool
from projects.actor import Actor
from projects.selectors import workload_count
from scheduler.reports.queues.pending_reasons import count_by_reason
from scheduler.reports.queues.queue_list import SEVERAL_POOLS, queued_workloads


@dataclass(frozen=True, slots=True)
class FilterChoices:
    """Filter choices. Workload counts treat an array as one workload."""

    reasons: list[tuple[str, int]]  # reasons with counts, most frequent first
    projects: list[str]  # projects with workloads in any pool, so that changing pools keeps the filter
    by_pool: Mapping[str, int]  # number of workloads; those without a pool count in each allowed pool
    headings: frozenset[str]  # pools with rows, including SEVERAL_POOLS
    queued: int  # number of queued workloads in the pool
    own: int  # number of the user's own queued workloads in the pool
    all_own: int
    all_queued: int


NO_CHOICES = FilterChoices([], [], {}, frozenset(), 0, 0, 0, 0)


def load_filter_choices(actor: Actor, pool: NodePool | None) -> FilterChoices:
    """Return the filter choices of the queue page for one pool or, if `pool` is None, for all pools."""
    everywhere = queued_workloads(actor, None)
    by_pool, totals, owned = Counter[str](), Counter[bool](), Counter[bool]()
    projects, headings = set(), set()
    for place, allowed, project, is_own, count in _count_groups(everywhere, actor):
        totals[is_own] += count
        projects.add(project)
        headings.add(place)
        pools = allowed if place == SEVERAL_POOLS else [place]
        by_pool.update(dict.fromkeys(pools, count))
        if pool is None or pool.name in pools:
            owned[is_own] += count
    reasons = count_by_reason(queued_workloads(actor, pool)).by_reason
    return FilterChoices(
        reasons,
        sorted(projects),
        by_pool,
        frozenset(headings),
        owned.total(),
        owned[True],
        totals[True],
        totals.total(),
    )


def _count_groups(rows: QuerySet[Any], actor: Actor) -> list[tuple[str, list[str], str, bool, int]]:
    owned = rows.order_by().annotate(is_own=Q(submitted_by=actor.user))
    return list(
        owned.values_list("queue_pool", "pools", "project__name", "is_own").annotate(n=workload_count())
    )
