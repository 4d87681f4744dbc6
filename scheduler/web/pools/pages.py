"""Node pool pages: allocation, devices, cost and scaling history."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.idle_rule import read_rule
from berth.core.values.amounts import MILLI
from berth.server.web.charts.bars import Bar, stacked_bar
from berth.server.web.lists.tables import Column, Listing, list_rows, requested_csv
from berth.server.web.pages import Request, page, signed_in
from pools import selectors
from pools.costs import HOURS_PER_MONTH, current_price, pool_costs
from pools.models import NodePool, ScalingEvent
from pools.models.scaling import ScalingKind
from pools.scale_down import list_blocked_actions
from projects.access import Action, may, visible_pools
from projects.queries.volumes import visible_volumes
from scheduler.reports.fragmentation import Fragmentation, FragmentationLevel, measure_fragmentation
from scheduler.reports.pool_diagnosis import diagnose_pool
from scheduler.reports.pool_findings import Finding, Severity
from scheduler.reports.queues.queue_list import queue_lengths
from scheduler.reports.utilization.summary import utilization_by_pool
from scheduler.web.pools.capacity import Capacity, capacity_by_pool, pool_capacity
from scheduler.web.pools.capacity_chart import SPANS, build_capacity_chart
from scheduler.web.pools.csv_exports import requested_pool_csv, scaling_history_listing
from scheduler.web.pools.node_table import BULK_ACTIONS
from scheduler.web.pools.nodes import allocated_gpus_by_project, list_pool_nodes
from scheduler.web.pools.remedies import remedy_buttons

TONES = {
    ScalingKind.READY: "good",
    ScalingKind.UNCORDON: "good",
    ScalingKind.RESUMED: "good",
    ScalingKind.PROVISION: "info",
    ScalingKind.ADOPTED: "info",
    ScalingKind.JOINED: "info",
    ScalingKind.AUTOSCALE: "accent",
    ScalingKind.CORDON: "warn",
    ScalingKind.DRAIN: "warn",
    ScalingKind.INTERRUPTION: "warn",
    ScalingKind.SURPLUS: "warn",
    ScalingKind.PAUSED: "warn",
    ScalingKind.LOST: "bad",
    ScalingKind.ORPHAN: "bad",
    ScalingKind.ERROR: "bad",
    ScalingKind.BOOT_FAILED: "bad",
    ScalingKind.RETRIED: "info",
}
TABS = (("overview", "Overview"), ("capacity", "Capacity and cost"), ("history", "Scaling history"))
FINDING_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "info"}


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """Number of errors and warnings in a pool's diagnosis, and the worst of them."""

    errors: int = 0
    warnings: int = 0
    worst: Finding | None = None


def count_findings(findings: Sequence[Finding]) -> FindingCounts:
    """Count the errors and warnings of a diagnosis, whose first finding is the worst."""
    severities = Counter(finding.severity for finding in findings)
    worst = next((finding for finding in findings if finding.severity != Severity.NOTE), None)
    return FindingCounts(severities[Severity.ERROR], severities[Severity.WARNING], worst)


@dataclass(frozen=True, slots=True)
class PoolRow:
    pool: NodePool
    capacity: Capacity
    is_admin: bool = False
    pending_workloads: int = 0
    pending_gpu_milli: int = 0
    busy_percent: float | None = None  # utilization of the allocated GPUs, or None if not measured
    price: Decimal | None = None  # price per GPU-hour

    @property
    def findings(self) -> FindingCounts:
        """Diagnosed errors and warnings, or none if the user is not a platform admin."""
        return count_findings(diagnose_pool(self.pool, timezone.now())) if self.is_admin else FindingCounts()

    @property
    def state(self) -> str:
        return selectors.pool_state(self.pool, timezone.now())

    @property
    def cost_per_hour(self) -> Decimal | None:
        """Hourly cost of the pool's existing GPUs, or None if the pool has no price."""
        return None if self.price is None else self.price * self.capacity.existing_gpus / MILLI

    @property
    def allocation(self) -> float | None:
        """Percentage of the pool's GPUs that are allocated, or None if the pool has no GPUs."""
        return round(100 * self.capacity.allocated / self.capacity.total, 1) if self.capacity.total else None


def _visible_pools(request: Request) -> QuerySet[NodePool]:
    return selectors.pools().filter(pk__in=visible_pools(request.actor))


def _ready_nodes(pool: Any) -> int:
    """Return the number of ready nodes, which the selector adds to the pool as an annotation."""
    return int(pool.nodes_ready)


COLUMNS: tuple[Column[PoolRow], ...] = (
    Column("name", "Pool", lambda row: row.pool.name),
    Column("state", "State", lambda row: row.state),
    Column("nodes", "Nodes", lambda row: _ready_nodes(row.pool), number=True),
    Column("allocated", "Allocated", lambda row: row.capacity.allocated / MILLI, "GPUs", number=True),
    Column("reserved", "Reserved", lambda row: row.capacity.reserved / MILLI, "GPUs", is_csv_only=True),
    Column("allocation", "Allocation", lambda row: row.allocation, "%"),
    Column("used", "Utilization", lambda row: row.busy_percent, "%", number=True),
    Column("queue", "Pending", lambda row: row.pending_workloads, "workloads", number=True),
    Column(
        "requested",
        "Requested by pending workloads",
        lambda row: row.pending_gpu_milli / MILLI,
        "GPUs",
        is_csv_only=True,
    ),
    Column("cost", "Cost per hour", lambda row: row.cost_per_hour, number=True, is_secondary=True),
    Column("node", "Per node", lambda row: row.pool.gpus_per_node, "GPUs", is_secondary=True),
    Column("maximum", "Maximum", lambda row: row.pool.nodes_max, "nodes", page_title="Size"),
    Column("minimum", "Minimum", lambda row: row.pool.nodes_min, "nodes", is_csv_only=True),
    Column("total", "Total", lambda row: row.capacity.total / MILLI, "GPUs", is_csv_only=True),
    Column("pending", "Starting", lambda row: row.capacity.pending / MILLI, "GPUs", is_csv_only=True),
    Column("model", "Model", lambda row: row.pool.gpu_model, is_csv_only=True),
    Column("cores", "Per node", lambda row: row.pool.cpu_milli / MILLI, "cores", is_csv_only=True),
    Column("memory", "Per node", lambda row: row.pool.memory_mib, "MiB", is_csv_only=True),
    Column("provider", "Provider", lambda row: row.pool.provider, is_csv_only=True),
    Column("runtime", "Runtime", lambda row: row.pool.runtime, is_csv_only=True),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    is_admin = may(request.actor, Action.ADMINISTER)
    rows = _pool_rows(list(_visible_pools(request)), is_admin=is_admin)
    listing = list_rows(request, COLUMNS, rows, file_name="node-pools", default="name")
    if file := requested_csv(request, listing):
        return file
    context = {
        "listing": listing,
        "rows": listing.rows,
        "may_change": is_admin,
        "may_view": may(request.actor, Action.VIEW_CAPACITY),
    }
    return page(request, "scheduler/pools/list.html", context, inner="scheduler/pools/rows.html")


def _pool_rows(pools: list[NodePool], *, is_admin: bool) -> list[PoolRow]:
    capacity, queues = capacity_by_pool(pools), queue_lengths()
    uses = utilization_by_pool(pools, timezone.now())
    rows = []
    for pool in pools:
        workloads, gpu_milli = queues.get(pool.name, (0, 0))
        rows.append(
            PoolRow(
                pool,
                capacity[pool.pk],
                is_admin,
                pending_workloads=workloads,
                pending_gpu_milli=gpu_milli,
                busy_percent=uses[pool.name].busy_percent if pool.name in uses else None,
                price=current_price(pool),
            )
        )
    return rows


def _selected_tab(request: Request, history: Listing[Any]) -> str:
    """Return the tab in the query string, or the tab that the other parameters belong to."""
    if (tab := request.GET.get("tab")) in dict(TABS):
        return str(tab)
    if "span" in request.GET:
        return "capacity"
    about_history = any(history.parameter(name) in request.GET for name in ("search", "sort", "cursor"))
    return "history" if about_history else TABS[0][0]


@signed_in
@require_GET
def detail(request: Request, name: str) -> HttpResponse | StreamingHttpResponse:
    pool = get_object_or_404(_visible_pools(request), name=name)
    is_admin = may(request.actor, Action.ADMINISTER)
    now = timezone.now()
    history = scaling_history_listing(request, pool, is_admin=is_admin)
    if file := requested_csv(request, history) or requested_pool_csv(request, pool, now):
        return file
    findings = diagnose_pool(pool, now) if is_admin else []
    nodes = list_pool_nodes(request, pool, findings, is_admin=is_admin)
    if nodes.listing and (file := requested_csv(request, nodes.listing)):
        return file
    costs = pool_costs(pool, now)
    pieces = measure_fragmentation(pool) if pool.gpus_per_node else None
    context = {
        "pool": pool,
        "idle_rule": read_rule(pool.idle_rule),
        "volumes": visible_volumes(request.actor, pool),
        "state": selectors.pool_state(pool, now),
        "capacity": pool_capacity([pool]),
        "course": build_capacity_chart(pool, now, request.GET.get("span", "")),
        "spans": SPANS,
        "pieces": pieces,
        "piece_bars": _bars_by_level(pieces) if pieces else [],
        "costs": costs,
        "per_month": None if costs.per_hour is None else costs.per_hour * HOURS_PER_MONTH,
        "price": "" if costs.price_per_gpu_hour is None else f"{costs.price_per_gpu_hour.normalize():f}",
        "spent": [("Last 24 hours", costs.day), ("Last 30 days", costs.month)],
        "nodes": nodes,
        "bulk_actions": BULK_ACTIONS,
        "blocked": list_blocked_actions(pool, now),
        "finding_counts": count_findings(findings),
        "findings": [
            (finding, FINDING_TONES[finding.severity], remedy_buttons(finding, pool)) for finding in findings
        ],
        "legend": allocated_gpus_by_project(request.actor, pool),
        "may_change": may(request.actor, Action.EDIT, pool),
        "is_admin": is_admin,
        "tabs": TABS,
        "tab": _selected_tab(request, history),
        "history": history,
        "events": [(row, event_tone(row), reason) for row, reason in history.rows],
    }
    return page(request, "scheduler/pools/detail.html", context, inner="scheduler/pools/detail_body.html")


def event_tone(row: ScalingEvent) -> str:
    """Return an event's display tone. A provisioning request that returned too few nodes is a warning."""
    if row.kind == ScalingKind.PROVISION and row.data.get("came", 0) < row.data.get("asked", 0):
        return "warn"
    return TONES.get(ScalingKind(row.kind), "")


def _bars_by_level(of: Fragmentation) -> list[tuple[FragmentationLevel, Bar]]:
    """Return each fragmentation level with a bar that shows its number of nodes. Empty levels are omitted."""
    return [
        (
            level,
            stacked_bar(
                [(level.nodes, "used")],
                of.nodes,
                f"{level.nodes} of {of.nodes} nodes have {level.gpus} GPUs free",
            ),
        )
        for level in of.levels
        if level.nodes or level.replicas
    ]
