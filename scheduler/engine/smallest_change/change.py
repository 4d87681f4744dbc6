"""Single changes to a snapshot that may let a pending workload start."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from berth.core.backports import StrEnum
from scheduler.engine.explain.new_nodes import make_node, new_node_shape
from scheduler.engine.model import (
    Node,
    NodeState,
    Pool,
    PoolQuota,
    Queue,
    Role,
    RoleGroup,
    Snapshot,
    Toleration,
    TopologyConstraint,
    Workload,
)


class ChangeKind(StrEnum):
    """Kinds of change, in the order in which proposals are sorted."""

    RESUMED = "resumed"
    BACKOFF_OVER = "backoff_over"
    DEPENDENCY_ENDED = "dependency_ended"
    PREEMPTION_DELAY_OVER = "preemption_delay_over"
    PREEMPTIBLE = "preemptible"
    POOL_ALLOWED = "pool_allowed"
    LABEL_DROPPED = "label_dropped"
    TAINT_TOLERATED = "taint_tolerated"
    GPU_MODEL_ALLOWED = "gpu_model_allowed"
    TOPOLOGY_DROPPED = "topology_dropped"
    SPREAD_RAISED = "spread_raised"
    REQUEST_LOWERED = "request_lowered"
    MAX_RUNTIME_LOWERED = "max_runtime_lowered"
    WORKLOAD_ENDED = "workload_ended"
    PRIORITY_RAISED = "priority_raised"
    LIMIT_RAISED = "limit_raised"
    QUOTA_RAISED = "quota_raised"
    MINIMUM_RUNTIME_OVER = "minimum_runtime_over"
    NODE_OPENED = "node_opened"
    CONSOLIDATION_ENABLED = "consolidation_enabled"
    MAX_MOVES_RAISED = "max_moves_raised"
    NODES_ADDED = "nodes_added"


Value = int | str | None


def require_integer(value: object) -> int:
    """Return the value, which must be an integer."""
    assert isinstance(value, int)
    return value


@dataclass(frozen=True, slots=True)
class Change:
    """One change to a snapshot, in the engine's units.

    `subject` names the object that changes, and is empty for the pending workload itself.
    """

    kind: ChangeKind
    subject: str = ""
    resource: str = ""
    before: Value = None
    after: Value = None
    pool: str = ""  # pool whose queue, nodes or settings change


Named = TypeVar("Named", Node, Pool, Queue, Workload)


def apply_change(snapshot: Snapshot, name: str, change: Change) -> Snapshot:
    """Return the snapshot after a change that may let the pending workload `name` start."""
    match change.kind:
        case ChangeKind.WORKLOAD_ENDED | ChangeKind.DEPENDENCY_ENDED:
            return _without_workload(snapshot, change.subject)
        case ChangeKind.QUOTA_RAISED | ChangeKind.LIMIT_RAISED:
            queue = _find_by_name(snapshot.queues, change.subject)
            return replace(snapshot, queues=_replace_by_name(snapshot.queues, _edit_queue(queue, change)))
        case ChangeKind.NODE_OPENED:
            node = replace(_find_by_name(snapshot.nodes, change.subject), state=NodeState.READY)
            return replace(snapshot, nodes=_replace_by_name(snapshot.nodes, node))
        case ChangeKind.NODES_ADDED:
            return replace(snapshot, nodes=(*snapshot.nodes, *_new_nodes(snapshot, change)))
        case ChangeKind.CONSOLIDATION_ENABLED | ChangeKind.MAX_MOVES_RAISED:
            pool = _edit_consolidation(_find_by_name(snapshot.pools, change.pool), change)
            return replace(snapshot, pools=_replace_by_name(snapshot.pools, pool))
        case ChangeKind.MINIMUM_RUNTIME_OVER:
            return _with_shorter_minimum_runtimes(snapshot, require_integer(change.before))
    return replace_workload(snapshot, _edit_workload(_find_by_name(snapshot.workloads, name), change))


def replace_workload(snapshot: Snapshot, workload: Workload) -> Snapshot:
    return replace(snapshot, workloads=_replace_by_name(snapshot.workloads, workload))


def _find_by_name(values: Iterable[Named], name: str) -> Named:
    return next(value for value in values if value.name == name)


def _replace_by_name(values: Iterable[Named], edited: Named) -> tuple[Named, ...]:
    return tuple(edited if value.name == edited.name else value for value in values)


def _without_workload(snapshot: Snapshot, name: str) -> Snapshot:
    return replace(
        snapshot,
        workloads=tuple(workload for workload in snapshot.workloads if workload.name != name),
        reservations=tuple(row for row in snapshot.reservations if row.workload != name),
    )


def _edit_queue(queue: Queue, change: Change) -> Queue:
    """Return the queue with its quota or limit raised.

    In a quota group, the quota or limit is raised in all pools of the group.
    """
    pool_quotas = dict(queue.pool_quotas)
    edited = pool_quotas.setdefault(change.pool, PoolQuota())
    for pool, pool_quota in pool_quotas.items():
        if pool == change.pool or (pool_quota.group and pool_quota.group == edited.group):
            pool_quotas[pool] = _with_raised_bound(pool_quota, change)
    return replace(queue, pool_quotas=pool_quotas)


def _with_raised_bound(pool_quota: PoolQuota, change: Change) -> PoolQuota:
    raised = {change.resource: require_integer(change.after)}
    if change.kind is ChangeKind.QUOTA_RAISED:
        return replace(pool_quota, quota=pool_quota.quota._replace(**raised))
    return replace(pool_quota, limit=pool_quota.limit._replace(**raised))


def _new_nodes(snapshot: Snapshot, change: Change) -> Iterator[Node]:
    nodes = sorted((node for node in snapshot.nodes if node.pool == change.pool), key=lambda node: node.name)
    shape = new_node_shape(_find_by_name(snapshot.pools, change.pool), nodes)
    assert shape is not None, "nodes are added only to a pool with a node shape"
    first = max((node.ordinal for node in nodes), default=-1) + 1
    for ordinal in range(first, first + require_integer(change.after)):
        yield replace(make_node(f"{change.pool}+{ordinal}", change.pool, shape), ordinal=ordinal)


def _edit_consolidation(pool: Pool, change: Change) -> Pool:
    if change.kind is ChangeKind.CONSOLIDATION_ENABLED:
        return replace(pool, consolidation=replace(pool.consolidation, enabled=True))
    return replace(pool, consolidation=replace(pool.consolidation, max_moves=require_integer(change.after)))


def _with_shorter_minimum_runtimes(snapshot: Snapshot, seconds: int) -> Snapshot:
    def remaining_seconds(minimum: int | None) -> int | None:
        return None if minimum is None else max(0, minimum - seconds)

    pools = tuple(
        replace(
            pool,
            reclaim_min_runtime=max(0, pool.reclaim_min_runtime - seconds),
            preempt_min_runtime=max(0, pool.preempt_min_runtime - seconds),
        )
        for pool in snapshot.pools
    )
    queues = tuple(
        replace(
            queue,
            reclaim_min_runtime=remaining_seconds(queue.reclaim_min_runtime),
            preempt_min_runtime=remaining_seconds(queue.preempt_min_runtime),
        )
        for queue in snapshot.queues
    )
    return replace(snapshot, pools=pools, queues=queues)


def _edit_workload(workload: Workload, change: Change) -> Workload:
    match change.kind:
        case ChangeKind.RESUMED:
            return replace(workload, suspended=False)
        case ChangeKind.BACKOFF_OVER:
            return replace(workload, backoff_until=None)
        case ChangeKind.PREEMPTION_DELAY_OVER:
            return replace(workload, preemption_delay=0)
        case ChangeKind.PREEMPTIBLE:
            return replace(workload, preemptible=True)
        case ChangeKind.POOL_ALLOWED:
            return replace(workload, pools=(*workload.pools, change.subject))
        case ChangeKind.MAX_RUNTIME_LOWERED:
            return replace(workload, max_runtime=require_integer(change.after))
        case ChangeKind.PRIORITY_RAISED:
            return replace(workload, priority=require_integer(change.after))
    return replace(workload, tree=_edit_group(workload.tree, change))


def _edit_group(group: RoleGroup, change: Change) -> RoleGroup:
    children = tuple(
        _edit_group(child, change) if isinstance(child, RoleGroup) else edit_role(child, change)
        for child in group.children
    )
    return replace(group, children=children, topology=_edit_topology(group.topology, change))


def _edit_topology(topology: TopologyConstraint | None, change: Change) -> TopologyConstraint | None:
    if change.kind is ChangeKind.TOPOLOGY_DROPPED and topology and topology.required == change.resource:
        return replace(topology, required=None)
    return topology


def edit_role(role: Role, change: Change) -> Role:
    if change.kind is ChangeKind.TOPOLOGY_DROPPED:
        return replace(role, topology=_edit_topology(role.topology, change))
    if role.name != change.subject:
        return role
    match change.kind:
        case ChangeKind.LABEL_DROPPED:
            selector = {key: value for key, value in role.node_selector.items() if key != change.resource}
            return replace(role, node_selector=selector)
        case ChangeKind.TAINT_TOLERATED:
            toleration = Toleration(key=change.resource, operator="Exists")
            return replace(role, tolerations=(*role.tolerations, toleration))
        case ChangeKind.GPU_MODEL_ALLOWED:
            return replace(role, gpu_models=(*role.gpu_models, str(change.after)))
        case ChangeKind.SPREAD_RAISED:
            return replace(role, spread_per_node=require_integer(change.after))
    return _lower_request(role, change.resource, require_integer(change.after))


def _lower_request(role: Role, resource: str, amount: int) -> Role:
    if resource == "replicas":
        return replace(role, min=amount, max=amount if role.max == role.min else role.max)
    request, key = role.request, resource.removeprefix("limit.")
    if key not in ("cpu", "memory_mib"):
        return replace(role, request=replace(request, **{key: amount}))
    requested, limit = getattr(request, key), getattr(request, f"limit_{key}")
    if resource != key:
        edited = {key: min(requested, amount), f"limit_{key}": amount}
    else:
        edited = {key: amount, f"limit_{key}": amount if limit == requested else limit}
    return replace(role, request=replace(request, **edited))
