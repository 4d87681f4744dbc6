"""Convert pools and nodes into engine values."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from pools.models import Node, NodePool
from scheduler.engine import model
from scheduler.engine.from_spec import seconds_of
from scheduler.reports.usage.decayed import HALF_LIFE

NODE_STATES = {
    "requested": model.NodeState.BOOTING,
    "booting": model.NodeState.BOOTING,
    "ready": model.NodeState.READY,
    "cordoned": model.NodeState.CORDONED,
    "draining": model.NodeState.DRAINING,
}


class NodeRow(NamedTuple):
    """What a decision needs of a node."""

    pk: int
    name: str
    pool_id: int
    state: str
    ordinal: int
    gpus: int
    gpu_model: str
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int
    max_pods: int
    labels: dict[str, str]
    taints: list[dict[str, str]]
    ready_at: datetime | None


def node_rows(pool: NodePool | None = None) -> list[NodeRow]:
    """Those that are there or on their way, by name; of one pool, or all."""
    rows = Node.objects.filter(state__in=NODE_STATES)
    if pool is not None:
        rows = rows.filter(pool=pool)
    return [NodeRow._make(row) for row in rows.order_by("name").values_list(*NodeRow._fields)]


@dataclass(slots=True)
class KnownNodes:
    """What was made of each row, so that it stays the very same while the row does."""

    _of: dict[int, tuple[Any, model.Node]] = field(default_factory=dict)

    def described(
        self, rows: Iterable[NodeRow], pools: Mapping[int, str], closed: Collection[str]
    ) -> tuple[model.Node, ...]:
        """`pools`: names by id. `closed`: of these, who take on no work yet."""
        before, self._of = self._of, {}
        for row in rows:
            pool = pools[row.pool_id]
            stands = (row, pool, pool not in closed)
            kept = before.get(row.pk)
            if kept is None or kept[0] != stands:
                kept = stands, _node(row, pool, takes_work=pool not in closed)
            self._of[row.pk] = kept
        return tuple(node for _, node in self._of.values())


def pool_of(row: NodePool, now: datetime) -> model.Pool:
    expired = row.expires_at is not None and row.expires_at <= now
    cannot_grow = row.paused or row.ordering_stopped or expired
    return model.Pool(
        name=row.name,
        node_strategy=model.Strategy(row.node_placement),
        device_strategy=model.Strategy(row.device_placement),
        reclaim_min_runtime=row.reclaim_min_runtime,
        preempt_min_runtime=row.preempt_min_runtime,
        preemption_delay=row.preemption_delay,
        stale_gang_grace=row.stale_gang_grace,
        consolidation=model.Consolidation(
            row.consolidation_enabled, row.consolidation_max_moves, row.consolidation_max_trials
        ),
        fair_share=model.FairShareMode(
            time_based=row.fairshare_mode == "time_based",
            half_life=row.half_life or (None if row.window else HALF_LIFE),  # as use is kept
            window=row.window,
            tumbling=row.tumbling,
            k=row.k,
            count_all=row.count_all,
        ),
        over_quota_weights=row.over_quota_weights,
        topology=tuple(row.topology),
        reservation_after=row.reservation_after,
        cpu_load_limit=row.cpu_load_limit,
        nodes_max=None if cannot_grow else row.nodes_max,
        nodes_ever=row.nodes_min if row.nodes_max is None else row.nodes_max,
        node_shape=model.NodeShape(
            gpus=row.gpus_per_node,
            gpu_model=row.gpu_model,
            gpu_memory_mib=row.gpu_memory_mib,
            cpu=row.cpu_milli,
            memory_mib=row.memory_mib,
            max_pods=row.max_pods,
            labels=row.labels,
            taints=_taints(row.taints),
        ),
    )


def _node(row: NodeRow, pool: str, *, takes_work: bool) -> model.Node:
    """A pool that has yet to reach its ready threshold has capacity to come, and none to give."""
    state = NODE_STATES[row.state]
    if state is model.NodeState.READY and not takes_work:
        state = model.NodeState.BOOTING
    return model.Node(
        name=row.name,
        pool=pool,
        gpus=row.gpus,
        gpu_model=row.gpu_model,
        gpu_memory_mib=row.gpu_memory_mib,
        cpu=row.cpu_milli,
        memory_mib=row.memory_mib,
        max_pods=row.max_pods,
        labels=row.labels,
        taints=_taints(row.taints),
        state=state,
        ordinal=row.ordinal,
        ready_at=seconds_of(row.ready_at) if row.ready_at else None,
    )


def _taints(stored: Iterable[Mapping[str, str]]) -> tuple[model.Taint, ...]:
    return tuple(
        model.Taint(taint["key"], taint.get("value", ""), taint.get("effect", "NoSchedule"))
        for taint in stored
    )
