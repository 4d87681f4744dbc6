"""Read the pools and nodes of a scenario."""

from berth.core.amounts import MILLI
from berth.core.spec.quantities import in_thousandths
from scheduler.engine.from_spec import seconds_of
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


def nodes_of(document: ScenarioDocument) -> tuple[Node, ...]:
    only = document.pools[0].name
    return tuple(_node(node, only) for node in document.nodes)


def pools_of(document: ScenarioDocument, nodes: tuple[Node, ...]) -> tuple[Pool, ...]:
    return tuple(
        _pool(pool, next((node for node in nodes if node.pool == pool.name), None)) for pool in document.pools
    )


def _node(given: NodeDocument, only: str) -> Node:
    return Node(
        name=given.name,
        pool=only if given.pool is None else given.pool,
        gpus=given.gpus,
        gpu_model=given.gpu_model,
        gpu_memory_mib=given.gpu_memory_mib,
        cpu=in_thousandths(given.cpu),
        memory_mib=given.memory_mib,
        max_pods=given.max_pods,
        labels=given.labels,
        taints=_taints(given),
        state=NodeState(given.state),
        ordinal=given.ordinal,
        ready_at=None if given.ready_at is None else seconds_of(given.ready_at),
    )


def _pool(given: PoolDocument, first: Node | None) -> Pool:
    bounds = given.nodes
    shape = _shape(bounds.shape) if bounds.shape is not None else _like(first)
    return Pool(
        name=given.name,
        node_strategy=Strategy(given.placement.nodes),
        device_strategy=Strategy(given.placement.devices),
        reclaim_min_runtime=given.reclaim_min_runtime,
        preempt_min_runtime=given.preempt_min_runtime,
        preemption_delay=given.preemption_delay,
        stale_gang_grace=given.stale_gang_grace,
        consolidation=Consolidation(
            given.consolidation.enabled, given.consolidation.max_moves, given.consolidation.max_trials
        ),
        fair_share=_fair_share(given.fairshare),
        over_quota_weights=given.over_quota_weights,
        topology=given.topology,
        reservation_after=given.reservation_after,
        cpu_load_limit=round(given.cpu_load_limit * MILLI),
        nodes_max=bounds.max,
        node_shape=shape if bounds.max is not None else None,
    )


def _fair_share(given: FairShareSettings) -> FairShareMode:
    """Time-based and nothing said about how: a half-life of a week."""
    time_based = given.mode == "time_based"
    half_life = given.half_life
    if time_based and half_life is None and given.window is None:
        half_life = WEEK
    return FairShareMode(time_based, half_life, given.window, given.tumbling, given.k, given.count == "all")


def _shape(given: Shape) -> NodeShape:
    return NodeShape(
        given.gpus,
        given.gpu_model,
        given.gpu_memory_mib,
        in_thousandths(given.cpu),
        given.memory_mib,
        given.max_pods,
        given.labels,
        _taints(given),
    )


def _like(node: Node | None) -> NodeShape | None:
    """One more node is like the first one."""
    if node is None:
        return None
    return NodeShape(
        node.gpus,
        node.gpu_model,
        node.gpu_memory_mib,
        node.cpu,
        node.memory_mib,
        node.max_pods,
        node.labels,
        node.taints,
    )


def _taints(given: Shape) -> tuple[Taint, ...]:
    return tuple(Taint(taint.key, taint.value, taint.effect) for taint in given.taints)
