"""Table of a large pool's nodes, with one line per node."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Count, F, Func, IntegerField, Sum
from django.utils import timezone

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_gpus
from berth.server.web.charts.bars import Bar, stacked_bar
from berth.server.web.lists.tables import Column, Listing, list_rows
from berth.server.web.pages import Request
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import ALIVE, HOSTING, PENDING, NodeState
from pools.models.scaling import ScalingKind
from pools.web.nodes import NODE_ACTIONS
from scheduler.models import Allocation, Reservation
from scheduler.reports.utilization import summary

PAGE_SIZE = 50
BULK_ACTIONS = ("cordon", "uncordon", "drain")
DEVICES = Func(F("devices"), function="cardinality", output_field=IntegerField())
BY_ACTOR = re.compile(r"^cordon by (\S+?)(?:: (.*))?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _AllocatedAmounts:
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = 0


class _Utilization:
    """GPU utilization by node, read only for the displayed nodes unless the table is sorted by it."""

    def __init__(self, pool: NodePool, now: datetime) -> None:
        self.pool, self.now = pool, now
        self.shown: dict[int, float | None] = {}

    @cached_property
    def utilization_by_node(self) -> Mapping[int, float | None]:
        return self._read_utilization(
            list(Node.objects.filter(pool=self.pool, state__in=ALIVE).values_list("pk", flat=True))
        )

    def load_shown_nodes(self, nodes: Sequence[int]) -> None:
        self.shown = self._read_utilization(nodes)

    def _read_utilization(self, nodes: Sequence[int]) -> dict[int, float | None]:
        uses: dict[int, list[summary.Utilization]] = {}
        running = summary.running_allocations().filter(node__in=nodes)
        for pod in summary.summarize_pods(running, self.now):
            uses.setdefault(pod.node_id, []).append(pod.use)
        return {node: summary.sum_utilization(each).busy_percent for node, each in uses.items()}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Row of the node table. `problem` is a short phrase, or empty for a node without problems."""

    node: Node
    allocated: _AllocatedAmounts
    reserved_milli: int
    problem: str
    utilization: _Utilization

    @property
    def age(self) -> float:
        """Seconds since the node was created."""
        return (self.utilization.now - self.node.created_at).total_seconds()

    @property
    def is_usable(self) -> bool:
        """Whether pods can run on the node. Otherwise, its free resources mean nothing."""
        return self.node.state in HOSTING

    @property
    def free_cpu_milli(self) -> int:
        return self.is_usable * max(0, self.node.cpu_milli - self.allocated.cpu_milli)

    @property
    def free_memory_mib(self) -> int:
        return self.is_usable * max(0, self.node.memory_mib - self.allocated.memory_mib)

    @property
    def busy_percent(self) -> float | None:
        """Utilization of the allocated GPUs, or None if it was not measured."""
        return self.utilization.shown.get(self.node.pk)

    @property
    def bulk_actions(self) -> str:
        """Bulk actions that apply to this node."""
        return " ".join(action for action in NODE_ACTIONS.get(self.node.state, ()) if action in BULK_ACTIONS)

    @property
    def bar(self) -> Bar:
        total, allocated = self.node.gpus * MILLI, self.allocated.gpu_milli
        reserved = min(self.reserved_milli, max(0, total - allocated))
        label = f"{format_gpus(allocated)} of {self.node.gpus} allocated"
        label += f", {format_gpus(reserved)} reserved" if reserved else ""
        return stacked_bar([(allocated, "used"), (reserved, "reserved")], total, label)


COLUMNS: tuple[Column[NodeRow], ...] = (
    Column("name", "Node", lambda row: row.node.name, rank=lambda row: row.node.ordinal),
    Column("state", "State", lambda row: row.node.state, is_searched=False),
    Column("gpus", "Allocated", lambda row: row.allocated.gpu_milli / MILLI, "GPUs", is_searched=False),
    Column("total", "Total", lambda row: row.node.gpus, "GPUs", is_csv_only=True, is_searched=False),
    Column("utilization", "Utilization",
           lambda row: row.utilization.utilization_by_node.get(row.node.pk), "%", number=True,
           is_searched=False),
    Column("cpu", "Free cores", lambda row: row.free_cpu_milli / MILLI, number=True, is_secondary=True,
           is_searched=False),
    Column("memory", "Free memory (MiB)", lambda row: row.free_memory_mib, number=True, is_secondary=True,
           is_searched=False, page_title="Free memory"),
    Column("pods", "Pods", lambda row: row.allocated.pods, number=True, is_searched=False),
    Column("age", "Created", lambda row: row.node.created_at, is_searched=False, page_title="Age",
           rank=lambda row: row.age),
    Column("problem", "Problem", lambda row: row.problem),
    Column("since", "In this state since", lambda row: row.node.since, is_csv_only=True, is_searched=False),
    Column("model", "Model", lambda row: row.node.gpu_model, is_csv_only=True, is_searched=False),
)  # fmt: skip


def list_node_rows(
    request: Request, pool: NodePool, nodes: Iterable[Node], *, is_admin: bool
) -> Listing[NodeRow]:
    """Return one page of the node table, sorted and filtered by the query string."""
    utilization = _Utilization(pool, timezone.now())
    allocated, reserved, now = _allocated_by_node(pool), _reserved_by_node(pool), timezone.now()
    cordons = _cordon_reasons(pool)
    rows = [
        NodeRow(
            node,
            allocated.get(node.pk, _AllocatedAmounts()),
            reserved.get(node.pk, 0),
            _describe_problem(node, pool, cordons.get(node.pk, ""), now, is_admin=is_admin),
            utilization,
        )
        for node in nodes
    ]
    columns = [column for column in COLUMNS if pool.gpus_per_node or column.unit not in ("GPUs", "%")]
    listing = list_rows(
        request, columns, rows,
        name="nodes", file_name=f"nodes-of-{pool.name}", default="name", size=PAGE_SIZE,
    )  # fmt: skip
    utilization.load_shown_nodes([row.node.pk for row in listing.rows])
    return listing


def _allocated_by_node(pool: NodePool) -> Mapping[int, _AllocatedAmounts]:
    active = Allocation.objects.filter(node__pool=pool, released_at__isnull=True).order_by()
    sums = active.values_list("node_id").annotate(
        gpu=Sum(F("gpu_milli") * DEVICES), cpu=Sum("cpu_milli"), memory=Sum("memory_mib"), n=Count("pk")
    )
    return {
        node: _AllocatedAmounts(gpu or 0, cpu or 0, memory or 0, pods)
        for node, gpu, cpu, memory, pods in sums
    }


def _reserved_by_node(pool: NodePool) -> Mapping[int, int]:
    rows = Reservation.objects.filter(node__pool=pool).order_by()
    sums = rows.values_list("node_id").annotate(n=Sum(F("gpu_milli") * DEVICES))
    return {node: milli or 0 for node, milli in sums}


def _cordon_reasons(pool: NodePool) -> Mapping[int, str]:
    """Return who cordoned each cordoned node and why, such as "ada: fan is loud"."""
    events = ScalingEvent.objects.filter(
        pool=pool, kind=ScalingKind.CORDON, node__state=NodeState.CORDONED
    ).order_by("node_id", "-at", "-pk")
    reasons = events.distinct("node_id").values_list("node_id", "reason")
    return {node: BY_ACTOR.sub(_actor_and_reason, reason) for node, reason in reasons}


def _actor_and_reason(match: re.Match[str]) -> str:
    return f"{match[2]} ({match[1]})" if match[2] else f"by {match[1]}"


def _describe_problem(node: Node, pool: NodePool, cordon: str, now: datetime, *, is_admin: bool) -> str:
    """Return the node's most important problem, or an empty string.

    Provider messages are only for platform admins.
    """
    if node.state == NodeState.LOST:
        return "No longer listed by the provider"
    if node.interruption_at is not None:
        end = f"Ends at {node.interruption_at:%Y-%m-%d %H:%M:%S} UTC"
        return ": ".join(filter(None, (end, node.drain_reason)))
    if node.state == NodeState.DRAINING:
        timeout = timedelta(seconds=pool.drain_timeout)
        is_overdue = node.emptied_at is None and now - (node.drain_started_at or now) > timeout
        return ": ".join(filter(None, ("Drain overdue" if is_overdue else "", node.drain_reason)))
    if node.state in PENDING:
        reason = node.not_ready_reason if is_admin else ""
        if node.queued:
            return reason or "In the provider's queue"
        is_slow = now - node.created_at > timedelta(seconds=pool.boot_timeout) / 2
        return reason or ("Slow boot" if is_slow else "")
    if node.state == NodeState.CORDONED and cordon:
        return f"Cordoned {cordon}" if cordon.startswith("by ") else cordon
    return node.obstacle
