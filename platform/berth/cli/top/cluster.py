"""Pools, nodes and workloads of the cluster, with allocated and used resources."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from berth.cli.options.listing import LIVE_PHASES
from berth.cli.printing.columns import phase_style
from berth.cli.printing.output import Column
from berth.cli.printing.text import format_age, format_number, utc_now
from berth.core.backports import StrEnum

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.nodes import Node
    from berth.client.models.pools import NodePool
    from berth.client.models.usage import Utilization
    from berth.client.models.workloads import Workload

ROWS_MAX = 200  # maximum number of rows per table; `berth list` shows all rows
GIB = 1024
IDLE_STYLE = "yellow"


class Sort(StrEnum):
    ALLOCATED = "allocated"
    USED = "used"
    AGE = "age"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class PoolRow:
    pool: "NodePool"
    use: "Utilization | None"

    def to_dict(self) -> dict[str, Any]:
        return {"pool": self.pool.to_dict(), "use": self.use.to_dict() if self.use else None}


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: "Node"
    use: "Utilization | None"

    def to_dict(self) -> dict[str, Any]:
        return {"node": self.node.to_dict(), "use": self.use.to_dict() if self.use else None}


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    workload: "Workload"
    use: "Utilization | None"
    idle_since: datetime | None

    def to_dict(self) -> dict[str, Any]:
        use = self.use.to_dict() if self.use else None
        idle = self.idle_since.isoformat() if self.idle_since else None
        return {"workload": self.workload.to_dict(), "use": use, "idle_since": idle}


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    at: datetime
    now: "Utilization"
    pools: Sequence[PoolRow]
    nodes: Sequence[NodeRow]
    workloads: Sequence[WorkloadRow]
    more: bool  # True if some workloads or nodes are not shown

    def to_dict(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "now": self.now.to_dict(),
            "pools": [row.to_dict() for row in self.pools],
            "nodes": [row.to_dict() for row in self.nodes],
            "workloads": [row.to_dict() for row in self.workloads],
        }


def fetch_snapshot(client: "Client", pool: str | None, project: str | None, sort: Sort) -> ClusterSnapshot:
    """Fetch the pools, nodes and workloads that the user may see."""
    whole = client.utilization.cluster(pool=pool, hours=1)
    usage_by_pool = {usage.pool: usage.now for usage in whole.pools}
    usage_by_node = {usage.node: usage.now for usage in client.utilization.nodes(pool=pool, limit=ROWS_MAX)}
    measured = client.utilization.workloads(pool=pool, project=project, limit=ROWS_MAX)
    usage_by_workload = {usage.id: usage for usage in measured}
    nodes = list(client.nodes.list(pool=pool, limit=ROWS_MAX + 1))
    live = client.workloads.list(
        limit=ROWS_MAX + 1, phase=LIVE_PHASES, pool=pool, project=project, sort="-gpus"
    )
    work, pools = list(live), client.node_pools.list()
    rows = [
        WorkloadRow(
            workload,
            use.now if (use := usage_by_workload.get(workload.id)) else None,
            use.idle_since if use else None,
        )
        for workload in work[:ROWS_MAX]
    ]
    return ClusterSnapshot(
        utc_now(),
        whole.now,
        [
            PoolRow(node_pool, usage_by_pool.get(node_pool.name))
            for node_pool in pools
            if pool in (None, node_pool.name)
        ],
        [NodeRow(node, usage_by_node.get(node.name)) for node in nodes[:ROWS_MAX]],
        sorted(rows, key=lambda row: _sort_key(row, sort)),
        len(work) > ROWS_MAX or len(nodes) > ROWS_MAX,
    )


def headline(snapshot: ClusterSnapshot) -> str:
    """Summarize the cluster on one line."""
    pool_capacity = sum(row.pool.capacity.gpu or 0 for row in snapshot.pools)
    phases = [row.workload.phase for row in snapshot.workloads]
    running = sum(phase in ("running", "starting", "stopping") for phase in phases)
    pending = sum(phase in ("pending", "reserved") for phase in phases)
    allocated_amount = snapshot.now.allocated.gpu
    share = f" ({allocated_amount / pool_capacity:.0%})" if pool_capacity else ""
    measured = "" if snapshot.now.gpu_busy_percent is None else f", {format_utilization(snapshot.now)} used"
    more = ", more not shown" if snapshot.more else ""
    return (
        f"{format_number(allocated_amount)} of {format_number(pool_capacity)} GPUs "
        f"allocated{share}{measured}; "
        f"workloads: {running:,} running, {pending:,} pending{more}"
    )


def pool_columns() -> list[Column]:
    return [
        Column("POOL", lambda r: r.pool.name),
        Column("NODES", lambda r: _format_ratio(r.pool.nodes_ready, r.pool.nodes_desired), right=True),
        Column("GPUS", lambda r: _format_ratio(_allocated_gpus(r.pool), r.pool.capacity.gpu), right=True),
        *_usage_columns(),
        Column("LAST ERROR", lambda r: r.pool.last_error or "-", flexible=True, optional=True),
    ]


def node_columns() -> list[Column]:
    return [
        Column("NODE", lambda r: r.node.name),
        Column("POOL", lambda r: r.node.pool, optional=True),
        Column("STATE", lambda r: r.node.state, style=lambda r: phase_style(r.node)),
        Column("GPUS", lambda r: _format_ratio(_allocated_gpus(r.node), r.node.capacity.gpu), right=True),
        *_usage_columns(),
    ]


def workload_columns(at: datetime) -> list[Column]:
    return [
        Column("WORKLOAD", lambda r: r.workload.handle),
        Column("PHASE", lambda r: r.workload.phase, style=lambda r: phase_style(r.workload)),
        Column("GPUS", lambda r: _format_ratio(r.workload.gpus.now, r.workload.gpus.requested), right=True),
        *_usage_columns(),
        Column("SINCE", lambda r: format_age(r.workload.since, at), right=True, optional=True),
        Column("BY", lambda r: r.workload.submitted_by or "-", optional=True),
        Column("REASON", lambda r: _format_reason(r, at), flexible=True, style=_reason_style),
    ]


def format_utilization(use: "Utilization | None") -> str:
    """Format the utilization of the allocated GPUs in percent, or a dash if it was not measured."""
    return "-" if use is None or use.gpu_busy_percent is None else f"{use.gpu_busy_percent:.0f}%"


def _usage_columns() -> Iterable[Column]:
    return (
        Column("BUSY", lambda r: format_utilization(r.use), right=True),
        Column("CPUS", lambda r: _format_usage(r.use, "cpu", 1), right=True, optional=True),
        Column("MEMORY GIB", lambda r: _format_usage(r.use, "memory_mib", GIB), right=True, optional=True),
        Column("GPU GIB", lambda r: _format_usage(r.use, "gpu_memory_mib", GIB), right=True, optional=True),
    )


def _format_usage(use: "Utilization | None", name: str, unit: int) -> str:
    """Format usage as "used/allocated", with a dash for usage that was not measured."""
    if use is None:
        return "-"
    used, allocated_amount = getattr(use.used, name), getattr(use.allocated, name)
    amount = "-" if used is None else f"{used / unit:,.1f}"
    return f"{amount}/{format_number(round(allocated_amount / unit, 1))}" if allocated_amount or used else "-"


def _allocated_gpus(place: Any) -> float:
    return float(place.capacity.gpu or 0) - float(place.free.gpu or 0)


def _format_ratio(part: float | None, whole: float | None) -> str:
    return f"{format_number(part)}/{format_number(whole)}"


def _format_reason(row: WorkloadRow, at: datetime) -> str:
    if row.idle_since is not None:
        return f"GPUs idle for {format_age(row.idle_since, at)}"
    return ": ".join(part for part in (row.workload.reason, row.workload.message) if part)


def _reason_style(row: WorkloadRow) -> str:
    return IDLE_STYLE if row.idle_since is not None else ""


def _sort_key(row: WorkloadRow, sort: Sort) -> tuple[float, str]:
    workload, use = row.workload, row.use
    first = {
        Sort.ALLOCATED: -workload.gpus.now,
        Sort.USED: -((use.used.gpu if use else None) or 0),
        Sort.AGE: workload.submitted_at.timestamp(),
        Sort.NAME: 0.0,
    }
    return first[sort], workload.handle
