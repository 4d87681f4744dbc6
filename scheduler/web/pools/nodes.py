"""Nodes on a pool's page, as tiles or (in large pools) a table, and the contents of a node's page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Sum
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.wording.words import format_pod_names, format_ranges, token_to_words
from berth.server.web.charts.hues import OTHER_PROJECTS_HUE, project_hue
from berth.server.web.lists.tables import Listing
from berth.server.web.pages import Request, signed_in
from pools.models import Node, NodePool
from pools.models.node import ALIVE, HOSTING, PENDING, NodeState
from pools.web.nodes import NODE_ACTIONS
from projects.access import visible_nodes, visible_projects
from projects.actor import Actor
from projects.models import Pod
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE
from projects.queries.lost_work import work_lost_if_stopped
from scheduler.models import Allocation
from scheduler.reports.pool_findings import Finding
from scheduler.web.pools.devices import NodeMap, measured_node_maps
from scheduler.web.pools.node_heatmap import NodeHeatmap, build_heatmap
from scheduler.web.pools.node_table import NodeRow, list_node_rows
from scheduler.web.utilization.pages import LAST_KNOWN

MAX_TILES = 30  # a pool with more nodes shows a table instead of tiles


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Tab that limits the table to nodes in one state, or with one problem."""

    title: str
    count: int
    query: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class PoolNodes:
    """Nodes shown on a pool's page: tiles, or a table if there are too many.

    `listing`, `heatmap` and `filters` belong to the table. `finding` is the selected problem, if any.
    """

    total: int
    maps: Sequence[tuple[NodeMap, tuple[str, ...]]]
    filters: Sequence[NodeFilter] = ()
    listing: Listing[NodeRow] | None = None
    heatmap: NodeHeatmap | None = None
    finding: Finding | None = None


def list_pool_nodes(
    request: Request, pool: NodePool, findings: Iterable[Finding], *, is_admin: bool
) -> PoolNodes:
    alive = Node.objects.filter(pool=pool, state__in=ALIVE).order_by("ordinal", "pk")
    counts = dict(alive.order_by().values_list("state").annotate(n=Count("pk")))
    total = sum(counts.values())
    selected = request.GET.get("finding", "")
    finding = next((each for each in findings if each.nodes and each.name == selected), None)
    shown = alive.filter(name__in=finding.nodes) if finding else alive
    if total <= MAX_TILES:
        maps = measured_node_maps(
            request.actor, shown.select_related("pool"), timezone.now(), MAX_MEASUREMENT_AGE
        )
        tiles = [(node_map, NODE_ACTIONS.get(node_map.node.state, ())) for node_map in maps]
        return PoolNodes(total, tiles, finding=finding)
    state = request.GET.get("state", "") if finding is None else ""
    if state in counts:
        shown = shown.filter(state=state)
    return PoolNodes(
        total,
        maps=(),
        filters=_node_filters(request, counts, finding),
        listing=list_node_rows(request, pool, shown, is_admin=is_admin),
        heatmap=build_heatmap(pool),
        finding=finding,
    )


def _node_filters(request: Request, counts: Mapping[str, int], finding: Finding | None) -> list[NodeFilter]:
    query = request.GET.copy()
    for name in ("finding", "state", "nodes-cursor"):
        query.pop(name, None)
    state = request.GET.get("state", "")
    current = state if state in counts else ""
    filters = []
    for each in ("", *map(str, (*HOSTING, *PENDING, NodeState.LOST))):
        count = counts.get(each, 0) if each else sum(counts.values())
        if count:
            query["state"] = each
            is_current = finding is None and current == each
            filters.append(
                NodeFilter(token_to_words(each) if each else "All", count, query.urlencode(), is_current)
            )
    if finding:
        query.pop("state")
        query["finding"] = finding.name
        title = finding.name[:1].upper() + finding.name[1:]
        filters.append(NodeFilter(title, len(finding.nodes), query.urlencode(), is_current=True))
    return filters


def allocated_gpus_by_project(actor: Actor, pool: NodePool) -> list[tuple[str, str, int]]:
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
    def first_pod(self) -> Pod:
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
    """Group the allocations by workload and pod state. Groups are ordered by their first pod."""
    groups: dict[tuple[UUID, str], list[Allocation]] = {}
    for row in rows:
        groups.setdefault((row.pod.workload_id, row.pod.state), []).append(row)
    return [PodGroup(each) for each in groups.values()]


@signed_in
@require_GET
def show_contents(request: Request, name: str) -> HttpResponse:
    """Show a node's GPUs with the pods on each, and the list of pods that the user may see."""
    node = get_object_or_404(visible_nodes(request.actor).select_related("pool"), name=name, state__in=ALIVE)
    allocations = Allocation.objects.filter(node=node, released_at__isnull=True)
    visible = allocations.filter(pod__workload__project__in=visible_projects(request.actor))
    rows = visible.select_related("pod__workload__project").order_by("pod__workload__name", "pod__rank", "pk")
    context = {
        "node_map": measured_node_maps(request.actor, [node], timezone.now(), LAST_KNOWN)[0],
        "groups": group_pods(rows),
        "hidden": allocations.count() - len(rows),
    }
    return render(request, "scheduler/pools/node_contents.html", context)


@signed_in
@require_GET
def show_lost_work(request: Request, name: str) -> HttpResponse:
    """Show in the confirmation dialog how much work would be lost if the node's pods stopped now."""
    node = get_object_or_404(visible_nodes(request.actor).select_related("pool"), name=name, state__in=ALIVE)
    request.require("edit", node)
    allocations = Allocation.objects.filter(node=node, released_at__isnull=True)
    seconds = work_lost_if_stopped(allocations.values_list("pod__workload", flat=True), timezone.now())
    context = {"lost_gpu_seconds": sum(seconds.values()), "drains": "drain" in request.GET}
    return render(request, "scheduler/pools/lost_work.html", context)
