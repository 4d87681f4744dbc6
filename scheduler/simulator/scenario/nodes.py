"""Read a scenario's pools and nodes."""

from berth.core.spec.values.quantities import to_thousandths
from berth.core.values.amounts import MILLI
from scheduler.engine.from_spec import to_timestamp
from scheduler.engine.model import (
    Consolidation,
    FairShareMode,
    Node,
    NodeShape,
    NodeState,
    Pool,
    Strategy,
    Taint,
)
from scheduler.simulator.scenario.schema import (
    FairShareSettings,
    NodeDocument,
    PoolDocument,
    ScenarioDocument,
    Shape,
)

WEEK = 7 * 86_400


def read_nodes(document: ScenarioDocument) -> tuple[Node, ...]:
    default_pool = document.pools[0].name
    return tuple(_build_node(node, default_pool) for node in document.nodes)


def read_pools(document: ScenarioDocument, nodes: tuple[Node, ...]) -> tuple[Pool, ...]:
    return tuple(
        _build_pool(pool, next((node for node in nodes if node.pool == pool.name), None))
        for pool in document.pools
    )


def _build_node(spec: NodeDocument, default_pool: str) -> Node:
    return Node(
        name=spec.name,
        pool=default_pool if spec.pool is None else spec.pool,
        gpus=spec.gpus,
        gpu_model=spec.gpu_model,
        gpu_memory_mib=spec.gpu_memory_mib,
        cpu=to_thousandths(spec.cpu),
        memory_mib=spec.memory_mib,
        max_pods=spec.max_pods,
        labels=spec.labels,
        taints=_build_taints(spec),
        state=NodeState(spec.state),
        ordinal=spec.ordinal,
        ready_at=None if spec.ready_at is None else to_timestamp(spec.ready_at),
        missing_features=_missing_features(spec),
        only_project=spec.only_project or "",
    )


def _build_pool(spec: PoolDocument, first: Node | None) -> Pool:
    bounds = spec.nodes
    default = None if first is None else first.shape  # shape of additional nodes unless they specify one
    shape = default if bounds.shape is None else _build_shape(bounds.shape)
    return Pool(
        name=spec.name,
        node_strategy=Strategy(spec.placement.nodes),
        device_strategy=Strategy(spec.placement.devices),
        reclaim_min_runtime=spec.reclaim_min_runtime,
        preempt_min_runtime=spec.preempt_min_runtime,
        preemption_delay=spec.preemption_delay,
        stale_gang_grace=spec.stale_gang_grace,
        consolidation=Consolidation(
            spec.consolidation.enabled, spec.consolidation.max_moves, spec.consolidation.max_trials
        ),
        fair_share=_build_fair_share(spec.fairshare),
        over_quota_weights=spec.over_quota_weights,
        topology=spec.topology,
        reservation_after=spec.reservation_after,
        cpu_load_limit=round(spec.cpu_load_limit * MILLI),
        nodes_max=bounds.max,
        node_shape=shape if bounds.max is not None else None,
    )


def _build_fair_share(spec: FairShareSettings) -> FairShareMode:
    """Return the fair-share mode. Time-based fair share has a default half-life of one week."""
    time_based = spec.mode == "time_based"
    half_life = spec.half_life
    if time_based and half_life is None and spec.window is None:
        half_life = WEEK
    return FairShareMode(time_based, half_life, spec.window, spec.tumbling, spec.k, spec.count == "all")


def _build_shape(spec: Shape) -> NodeShape:
    return NodeShape(
        spec.gpus,
        spec.gpu_model,
        spec.gpu_memory_mib,
        to_thousandths(spec.cpu),
        spec.memory_mib,
        spec.max_pods,
        spec.labels,
        _build_taints(spec),
        _missing_features(spec),
    )


def _build_taints(spec: Shape) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints)


def _missing_features(spec: Shape) -> dict[str, str]:
    return {str(feature): reason for feature, reason in spec.lacks.items()}
