"""Nodes on a pool's page, paginated for large pools."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet, Sum
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.words import format_pod_names, format_ranges
from berth.server.web.charts.hues import OTHER_PROJECTS_HUE, project_hue
from berth.server.web.lists.paging import Slice, load_slice
from berth.server.web.pages import Request, signed_in
from pools.models import Node, NodePool
from pools.models.node import ALIVE
from pools.web.nodes import NODE_ACTIONS
from projects.access import visible_nodes, visible_projects
from projects.actor import Actor
from projects.models import Pod
from scheduler.models import Allocation
from scheduler.web.pools.devices import NodeMap, build_node_maps, measured_node_map
from scheduler.web.pools.node_heatmap import NodeHeatmap, build_heatmap
from scheduler.web.utilization.pages import LAST_KNOWN

MAX_UNPAGED_NODES, PAGE_SIZE = 24, 12  # maximum number of nodes without pagination, and nodes per page


@dataclass(frozen=True, slots=True)
class PoolNodes:
    """Nodes shown on a pool's page.

    `maps` pairs each node with its available actions. `heatmap` is set only if there are too many
    nodes for one page.
    """

    maps: Sequence[tuple[NodeMap, tuple[str, ...]]]
    slice: Slice[Node]
    states: Sequence[tuple[str, int]]  # (state, node count) pairs
    state: str
    find: str
    heatmap: NodeHeatmap | None
    total: int


def list_pool_nodes(request: Request, pool: NodePool) -> PoolNodes:
    alive = Node.objects.filter(pool=pool, state__in=ALIVE)
    counts = dict(alive.order_by().values_list("state").annotate(n=Count("pk")))
    total = sum(counts.values())
    large = total > MAX_UNPAGED_NODES
    state, find = (request.GET.get(name, "") if large else "" for name in ("state", "find"))
    find = find.replace("\0", "")[:64]
    rows = _filter_nodes(alive, state if state in counts else "", find)
    shown = load_slice(
        rows.select_related("pool"), {"number": "ordinal"}, sort="number", default="number",
        cursor=request.GET.get("nodes", "") if large else "", size=PAGE_SIZE if large else MAX_UNPAGED_NODES,
    )  # fmt: skip
    maps = build_node_maps(request.actor, shown.rows)
    return PoolNodes(
        maps=[(node_map, NODE_ACTIONS.get(node_map.node.state, ())) for node_map in maps],
        slice=shown,
        states=[(state_, counts[state_]) for state_ in map(str, ALIVE) if state_ in counts],
        state=state,
        find=find,
        heatmap=build_heatmap(pool) if large else None,
        total=total,
    )


def allocated_by_project(actor: Actor, pool: NodePool) -> list[tuple[str, str, int]]:
    """Return (hue, name, milli-GPU) for each visible project by name, then one entry for all other
    projects.
    """
    visible = set(visible_projects(actor).values_list("pk", flat=True))
    rows: Any = Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by()
    names = ("pod__workload__project_id", "pod__workload__project__name")
    sums = rows.values_list(*names).annotate(n=Sum(F("gpu_milli") * F("devices__len")))
    seen = sorted((name, project_hue(pk), milli) for pk, name, milli in sums if pk in visible and milli)
    others = sum(milli or 0 for pk, _, milli in sums if pk not in visible)
    segments = [(colour, name, milli) for name, colour, milli in seen]
    return [*segments, (OTHER_PROJECTS_HUE, "Other projects", others)] if others else segments


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one workload on a node that have the same state, with their total resources."""

    allocations: Sequence[Allocation]

    @property
    def first(self) -> Pod:
        return self.allocations[0].pod

    @property
    def names(self) -> str:
        """The names of the pods, such as "worker-0 to worker-3, worker-6"."""
        return format_pod_names((row.pod.role, row.pod.index) for row in self.allocations)

    @property
    def devices(self) -> str:
        """The device indices, such as "0 to 3, 6"."""
        return format_ranges(device for row in self.allocations for device in row.devices)

    @property
    def gpu_milli(self) -> int:
        return sum(row.gpu_milli_total for row in self.allocations)

    @property
    def cpu_milli(self) -> int:
        return sum(row.cpu_milli for row in self.allocations)

    @property
    def memory_mib(self) -> int:
        return sum(row.memory_mib for row in self.allocations)


def group_pods(rows: Iterable[Allocation]) -> list[PodGroup]:
    """Group the allocations by workload and pod state, in the order of their first pods."""
    groups: dict[tuple[UUID, str], list[Allocation]] = {}
    for row in rows:
        groups.setdefault((row.pod.workload_id, row.pod.state), []).append(row)
    return [PodGroup(each) for each in groups.values()]


@signed_in
@require_GET
def contents(request: Request, name: str) -> HttpResponse:
    """Show a node's GPUs with the pods on each, and the list of pods that the user may see."""
    node = get_object_or_404(visible_nodes(request.actor).select_related("pool"), name=name, state__in=ALIVE)
    allocations = Allocation.objects.filter(node=node, released_at__isnull=True)
    visible = allocations.filter(pod__workload__project__in=visible_projects(request.actor))
    rows = visible.select_related("pod__workload__project").order_by("pod__workload__name", "pod__rank", "pk")
    context = {
        "node_map": measured_node_map(request.actor, node, timezone.now(), LAST_KNOWN),
        "groups": group_pods(rows),
        "hidden": allocations.count() - len(rows),
    }
    return render(request, "scheduler/pools/node_contents.html", context)


def _filter_nodes(alive: QuerySet[Node], state: str, find: str) -> QuerySet[Node]:
    rows = alive.filter(state=state) if state else alive
    return rows.filter(name__icontains=find) if find else rows
