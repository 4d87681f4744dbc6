"""Nodes on a pool's page, paginated in large pools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, QuerySet, Sum

from berth.server.web.lists.paging import Slice, slice_of
from berth.server.web.pages import Request
from pools.models import Node, NodePool
from pools.models.node import ALIVE
from projects.access import visible_projects
from projects.acting import Acting
from scheduler.models import Allocation
from scheduler.web.pools.devices import HELD_BY_OTHERS, NodeMap, hue, maps_of
from scheduler.web.pools.node_heatmap import Mosaic, mosaic_of

SMALL, AT_ONCE = 24, 12  # nodes shown without paging, and nodes per page
STEPS: Mapping[str, tuple[str, ...]] = {
    "requested": ("terminate",),
    "booting": ("terminate",),
    "ready": ("cordon", "drain", "terminate"),
    "cordoned": ("uncordon", "drain", "terminate"),
    "draining": ("uncordon", "terminate"),
}


@dataclass(frozen=True, slots=True)
class PoolNodes:
    """Nodes on a page. `maps` includes each node's actions; `mosaic` is set if there are too many to show."""

    maps: Sequence[tuple[NodeMap, tuple[str, ...]]]
    slice: Slice[Node]
    states: Sequence[tuple[str, int]]  # states with node counts
    state: str
    find: str
    mosaic: Mosaic | None
    total: int


def nodes_of(request: Request, pool: NodePool) -> PoolNodes:
    alive = Node.objects.filter(pool=pool, state__in=ALIVE)
    counts = dict(alive.order_by().values_list("state").annotate(n=Count("pk")))
    total = sum(counts.values())
    large = total > SMALL
    state, find = (request.GET.get(name, "") if large else "" for name in ("state", "find"))
    find = find.replace("\0", "")[:64]
    rows = _filter_nodes(alive, state if state in counts else "", find)
    shown = slice_of(
        rows.select_related("pool"), {"number": "ordinal"}, sort="number", default="number",
        cursor=request.GET.get("nodes", "") if large else "", size=AT_ONCE if large else SMALL,
    )  # fmt: skip
    maps = maps_of(request.acting, shown.rows)
    return PoolNodes(
        maps=[(each, STEPS.get(each.node.state, ())) for each in maps],
        slice=shown,
        states=[(each, counts[each]) for each in map(str, ALIVE) if each in counts],
        state=state,
        find=find,
        mosaic=mosaic_of(pool) if large else None,
        total=total,
    )


def held_by(acting: Acting, pool: NodePool) -> list[tuple[str, str, int]]:
    """Return (hue, project, milli-GPU) of visible projects by name, then one entry for all others."""
    visible = set(visible_projects(acting).values_list("pk", flat=True))
    rows: Any = Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by()
    names = ("pod__workload__project_id", "pod__workload__project__name")
    sums = rows.values_list(*names).annotate(n=Sum(F("gpu_milli") * F("devices__len")))
    seen = sorted((name, hue(pk), milli) for pk, name, milli in sums if pk in visible and milli)
    others = sum(milli or 0 for pk, _, milli in sums if pk not in visible)
    segments = [(colour, name, milli) for name, colour, milli in seen]
    return [*segments, (HELD_BY_OTHERS, "Other projects", others)] if others else segments


def _filter_nodes(alive: QuerySet[Node], state: str, find: str) -> QuerySet[Node]:
    rows = alive.filter(state=state) if state else alive
    return rows.filter(name__icontains=find) if find else rows
