"""Convert pools and nodes to engine objects."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from berth.db.queries.compiled import compiled_once
from pools.models import Node, NodePool
from scheduler.engine import model
from scheduler.engine.from_spec import to_timestamp
from scheduler.loop.observe.isolation import Features, reported_missing_features
from scheduler.loop.observe.volumes import StoredVolumes, missing_volumes
from scheduler.reports.usage.decayed import HALF_LIFE

NO_PROJECTS: Mapping[int, str] = {}
NO_FEATURES: Features = {}
NO_VOLUMES: Mapping[int, StoredVolumes] = {}

NODE_STATES = {
    "requested": model.NodeState.BOOTING,
    "booting": model.NodeState.BOOTING,
    "ready": model.NodeState.READY,
    "cordoned": model.NodeState.CORDONED,
    "draining": model.NodeState.DRAINING,
}


class NodeRow(NamedTuple):
    """Columns of a node that a decision needs."""

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
    isolation: dict[str, Any] | None
    obstacle: str
    foreign_devices: list[int]


def load_node_rows(pool: NodePool | None = None) -> list[NodeRow]:
    """Return the nodes in one pool or in all pools, ordered by name.

    Nodes that are lost or no longer exist are omitted.
    """
    rows = NODES() if pool is None else _observed_nodes().filter(pool=pool)
    return [NodeRow._make(row) for row in rows]


def _observed_nodes() -> Any:
    return Node.objects.filter(state__in=NODE_STATES).order_by("name").values_list(*NodeRow._fields)


NODES = compiled_once(_observed_nodes)


@dataclass(slots=True)
class NodeCache:
    """Engine nodes, keyed by ID. Each node remains the same object until its row changes."""

    _nodes: dict[int, tuple[Any, model.Node]] = field(default_factory=dict)

    def to_engine_nodes(
        self, rows: Iterable[NodeRow], pools: Mapping[int, str], closed: Collection[str],
        projects: Mapping[int, str] = NO_PROJECTS, volumes: Mapping[int, StoredVolumes] = NO_VOLUMES,
    ) -> tuple[model.Node, ...]:  # fmt: skip
        """Return engine nodes.

        `pools` maps pool IDs to names, and `closed` contains the pools below their ready threshold.
        `projects` maps each node that serves only one project to that project. `volumes` maps pool IDs to
        volumes.
        """
        before, self._nodes = self._nodes, {}
        for row in rows:
            pool = pools[row.pool_id]
            key = (row, pool, pool not in closed, projects.get(row.pk, ""), volumes.get(row.pool_id, ()))
            cached = before.get(row.pk)
            if cached is None or cached[0] != key:
                node = _engine_node(
                    row, pool, is_open=pool not in closed, only_project=key[3], volumes=key[4]
                )
                cached = key, node
            self._nodes[row.pk] = cached
        return tuple(node for _, node in self._nodes.values())


def engine_pool(row: NodePool, now: datetime, missing_features: Features = NO_FEATURES) -> model.Pool:
    """Convert a pool row to an engine pool.

    `missing_features` contains the features that new nodes are expected to lack.
    """
    expired = row.expires_at is not None and row.expires_at <= now
    cannot_grow = row.paused or row.provisioning_stopped or expired
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
            half_life=row.half_life
            or (None if row.window else HALF_LIFE),  # the default is the same as in the usage ledger
            window=row.window,
            tumbling=row.tumbling_window,
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
            taints=_engine_taints(row.taints),
            missing_features={**missing_features, **missing_volumes(row.volumes, row.labels, None)},
        ),
    )


def _engine_node(
    row: NodeRow, pool: str, *, is_open: bool, only_project: str, volumes: StoredVolumes
) -> model.Node:
    state = NODE_STATES[row.state]
    if state is model.NodeState.READY and row.obstacle:
        state = model.NodeState.CORDONED
    if state is model.NodeState.READY and not is_open:
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
        taints=_engine_taints(row.taints),
        state=state,
        ordinal=row.ordinal,
        ready_at=to_timestamp(row.ready_at) if row.ready_at else None,
        missing_features={
            **reported_missing_features(row.isolation),
            **missing_volumes(volumes, row.labels, row.isolation),
        },
        only_project=only_project,
        foreign_devices=tuple(device for device in row.foreign_devices if device < row.gpus),
    )


def _engine_taints(stored: Iterable[Mapping[str, str]]) -> tuple[model.Taint, ...]:
    return tuple(
        model.Taint(taint["key"], taint.get("value", ""), taint.get("effect", "NoSchedule"))
        for taint in stored
    )
