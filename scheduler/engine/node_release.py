"""Decide whether a pool can release a node.

All of the node's pods must fit on other nodes immediately. No other workload may be evicted or start later
because of the release.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.decide import decide
from scheduler.engine.forecast import forecasts
from scheduler.engine.model import Node, NodeState, Pod, PodState, Pool, Queue, Snapshot, Workload
from scheduler.engine.plan import Bundle, Evict, Eviction, Kind, Place, Plan, QueueImpact, Reason

# Maximum work that may be lost by moving pods off a node, in node-seconds.
PAYBACK = 3600
# Maximum number of nodes tried per call. A time limit would make decisions depend on the machine's speed.
MAX_NODES_TRIED = 4

# Pending reasons that do not depend on the number of nodes.
CAPACITY_INDEPENDENT = frozenset({
    Reason.MISCONFIGURED, Reason.SUSPENDED, Reason.DEPENDENCY_NOT_MET, Reason.FETCHING_CODE,
    Reason.NO_MATCHING_NODE, Reason.EXCEEDS_NODE_SHAPE, Reason.EXCEEDS_POOL_MAX,
    Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT, Reason.CLUSTER_QUOTA,
    Reason.NON_PREEMPTIBLE_OVER_QUOTA, Reason.DEPARTMENT_OVERSOLD, Reason.EXCEEDS_DOMAIN,
})  # fmt: skip

Key = tuple[str, str, int]  # workload name, role name and replica index


@dataclass(frozen=True, slots=True)
class ReleasableNode:
    """Node that the pool can release once `bundles` have been committed."""

    pool: str
    node: str
    bundles: tuple[Bundle, ...]


def find_empty_nodes(
    snapshot: Snapshot, plan: Plan, pool: str, offered: Iterable[str], max_nodes: int
) -> tuple[str, ...]:
    """Return up to `max_nodes` nodes in `offered` that have no pods and that no pending workload needs,
    newest first.
    """
    if max_nodes < 1 or not is_pool_settled(plan, pool):
        return ()
    pods_on = _pods_by_node(snapshot)
    chosen = [node.name for node in _candidates(snapshot, pool, offered) if not pods_on.get(node.name)][
        :max_nodes
    ]
    if not chosen or _plan_without_nodes(snapshot, plan, pool, frozenset(chosen), {}) is None:
        return ()
    return tuple(chosen)


def find_node_to_release(
    snapshot: Snapshot, plan: Plan, pool: str, offered: Iterable[str], payback: int = PAYBACK
) -> ReleasableNode | None:
    """Return the node in `offered` whose release loses the least work, or None.

    `plan` must be the plan for the same snapshot.
    """
    if not is_pool_settled(plan, pool):
        return None
    pods_on, by_name = _pods_by_node(snapshot), {workload.name: workload for workload in snapshot.workloads}
    move_rules = MoveRules(snapshot, pool, payback)
    costs: list[tuple[int, int, int, Node]] = []
    for node in _candidates(snapshot, pool, offered):
        pods = pods_on.get(node.name, {})
        cost = move_rules.cost(node, [by_name[name] for name in pods]) if pods else None
        if cost is not None:
            costs.append((cost, sum(map(len, pods.values())), -node.ordinal, node))
    for _, _, _, node in sorted(costs, key=lambda cost: cost[:3])[:MAX_NODES_TRIED]:
        moving = pods_on[node.name]
        new_plan = _plan_without_nodes(snapshot, plan, pool, frozenset({node.name}), moving)
        placements = None if new_plan is None else _new_placements(new_plan, pool, moving)
        if placements is not None:
            return ReleasableNode(
                pool, node.name, _build_move_bundles(snapshot, plan, pool, node, moving, placements)
            )
    return None


def is_pool_settled(plan: Plan, pool: str) -> bool:
    """Return whether the plan changes nothing in the pool and no workload is waiting for the pool's
    capacity.
    """
    return (
        not any(bundle.pool == pool for bundle in plan.bundles)
        and not any(d.pool == pool and (d.queued.pods or d.nodes_wanted) for d in plan.demand)
        and all(
            rejection.pool != pool or rejection.blockers[0].reason in CAPACITY_INDEPENDENT
            for rejection in plan.rejections
        )
    )


def _candidates(snapshot: Snapshot, pool: str, offered: Iterable[str]) -> list[Node]:
    """Return the ready nodes that the pool may release, newest first.

    The head node and nodes with reservations are excluded.
    """
    names = set(offered) - {reservation.node for reservation in snapshot.reservations}
    result = [
        node
        for node in snapshot.nodes
        if node.pool == pool and node.name in names and node.ordinal and node.state is NodeState.READY
    ]
    return sorted(result, key=lambda node: (-node.ordinal, node.name))


def _pods_by_node(snapshot: Snapshot) -> dict[str, dict[str, list[Pod]]]:
    result: dict[str, dict[str, list[Pod]]] = {}
    for workload in sorted(snapshot.workloads, key=lambda workload: workload.name):
        for pod in workload.pods:
            if pod.state is not PodState.COMPLETED:
                result.setdefault(pod.node, {}).setdefault(workload.name, []).append(pod)
    return result


def _plan_without_nodes(
    snapshot: Snapshot, plan: Plan, pool: str, removed: AbstractSet[str], moving: Mapping[str, Sequence[Pod]]
) -> Plan | None:
    """Return the plan without the `removed` nodes, or None if any workload that is not in `moving` would be
    worse off.
    """
    edited = _remove_nodes(snapshot, pool, removed, moving)
    new_plan = decide(edited)
    others = tuple(bundle for bundle in new_plan.bundles if bundle.workload not in moving)
    if others != plan.bundles or len(new_plan.notes) > len(plan.notes):
        return None
    if not _does_pool_stay_settled(new_plan, pool, moving):
        return None
    before, after = forecasts(snapshot, plan), forecasts(edited, new_plan)
    for name, result in after.items():
        expected = before[name].at if name in before else None
        if name not in before or (expected is not None and (result.at is None or result.at > expected)):
            return None
    return new_plan


def _does_pool_stay_settled(new_plan: Plan, pool: str, moving: Mapping[str, Sequence[Pod]]) -> bool:
    moved_bundles = tuple(bundle for bundle in new_plan.bundles if bundle.workload in moving)
    rest = tuple(bundle for bundle in new_plan.bundles if bundle.workload not in moving)
    return not any(bundle.evictions for bundle in moved_bundles) and is_pool_settled(
        replace(new_plan, bundles=rest), pool
    )


def _remove_nodes(
    snapshot: Snapshot, pool: str, removed: AbstractSet[str], moving: Mapping[str, Sequence[Pod]]
) -> Snapshot:
    """Return the snapshot without the nodes and their pods. Workloads in `moving` may use only `pool`."""
    return replace(
        snapshot,
        nodes=tuple(node for node in snapshot.nodes if node.name not in removed),
        workloads=tuple(
            _remove_pods(workload, pool, removed) if workload.name in moving else workload
            for workload in snapshot.workloads
        ),
    )


def _remove_pods(workload: Workload, pool: str, removed: AbstractSet[str]) -> Workload:
    stay = tuple(pod for pod in workload.pods if pod.node not in removed or pod.state is PodState.COMPLETED)
    return replace(workload, pools=(pool,), pods=stay)


def _new_placements(
    new_plan: Plan, pool: str, moving: Mapping[str, Sequence[Pod]]
) -> Mapping[Key, Place] | None:
    """Return each moving pod's new placement.

    Return None if the plan does not place exactly these pods, all immediately and in this pool.
    """
    steps = [step for bundle in new_plan.bundles if bundle.workload in moving for step in bundle.steps]
    placed = {
        (step.workload, step.role, step.index): step
        for step in steps
        if isinstance(step, Place) and not step.reserved
    }
    requested = {(name, pod.role, pod.index) for name, pods in moving.items() for pod in pods}
    in_pool = all(bundle.pool == pool for bundle in new_plan.bundles if bundle.workload in moving)
    return placed if in_pool and len(placed) == len(steps) and placed.keys() == requested else None


def _build_move_bundles(
    snapshot: Snapshot,
    plan: Plan,
    pool: str,
    node: Node,
    moving: Mapping[str, Sequence[Pod]],
    placements: Mapping[Key, Place],
) -> tuple[Bundle, ...]:
    projects = {workload.name: workload.project for workload in snapshot.workloads}
    return tuple(
        _build_move_bundle(
            pool, node, name, pods, placements, _queue_impacts(snapshot, plan, pool, projects[name])
        )
        for name, pods in moving.items()
    )


def _build_move_bundle(
    pool: str,
    node: Node,
    name: str,
    pods: Sequence[Pod],
    placements: Mapping[Key, Place],
    impacts: tuple[QueueImpact, ...],
) -> Bundle:
    """Return a bundle that stops the pods and reserves their new placements."""
    rule = f"moved to release node {node.name}: its workloads fit on other nodes"
    stopped = [Evict(name, p.role, p.index, p.node, p.devices, p.milli) for p in pods]
    reserved = [replace(placements[name, p.role, p.index], reserved=True) for p in pods]
    removed = tuple((pod.role, pod.index) for pod in pods)
    eviction = Eviction(Kind.CONSOLIDATE, name, None, rule, removed, whole=False, victim=impacts)
    return Bundle(Kind.CONSOLIDATE, name, pool, (*stopped, *reserved), (eviction,), rule)


def _queue_impacts(snapshot: Snapshot, plan: Plan, pool: str, project: str) -> tuple[QueueImpact, ...]:
    """Return the impact on the project and its department. Moves do not change their allocations."""
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    reports = {report.queue: report for report in plan.queues if report.pool == pool}
    path = [reports[name] for name in (project, parents.get(project)) if name in reports]
    return tuple(QueueImpact(r.queue, r.quota, r.share, r.allocated, r.allocated) for r in path)


class MoveRules:
    """Rules that decide which workloads of a pool may be moved, and how much work each move would lose."""

    def __init__(self, snapshot: Snapshot, pool: str, payback: int) -> None:
        self.now, self.payback = snapshot.now, payback
        self.pool = next(candidate for candidate in snapshot.pools if candidate.name == pool)
        self.queues = {queue.name: queue for queue in snapshot.queues}

    def cost(self, node: Node, workloads: Sequence[Workload]) -> int | None:
        """Return the work that moving the pods would lose, in milliseconds of the node's full capacity.

        Return None if a move is not allowed or would lose more than `payback` seconds.
        """
        if not all(self._may_move(workload) for workload in workloads):
            return None
        capacity = node.gpus * MILLI or node.cpu
        discarded = sum(
            self._lost_seconds(workload, pod) * _pod_weight(node, workload, pod)
            for workload in workloads
            for pod in workload.pods
            if pod.state is PodState.RUNNING
        )
        cost = discarded * MILLI // max(capacity, 1)
        return cost if cost <= self.payback * MILLI else None

    def _may_move(self, workload: Workload) -> bool:
        stable = all(pod.state in (PodState.RUNNING, PodState.COMPLETED) for pod in workload.pods)
        steady = stable and workload.stale_since is None and not workload.suspended
        has_queue = workload.project in self.queues
        return steady and has_queue and workload.preemptible and not self._is_within_min_runtime(workload)

    def _is_within_min_runtime(self, workload: Workload) -> bool:
        """Return whether the workload is within the longer of its minimum runtimes for preemption
        and reclaim.
        """
        project = self.queues[workload.project]
        path = [project, self.queues[project.parent]] if project.parent in self.queues else [project]
        started = workload.started
        if started is None:
            started = min(pod.started for pod in workload.pods if pod.state is PodState.RUNNING)
        return self.now - started < max(_min_runtimes(path, self.pool))

    def _lost_seconds(self, workload: Workload, pod: Pod) -> int:
        return max(0, self.now - max(pod.started, workload.started or 0, workload.last_checkpoint or 0))


def _min_runtimes(path: Sequence[Queue], pool: Pool) -> tuple[int, int]:
    reclaim = (queue.reclaim_min_runtime for queue in path)
    preempt = (queue.preempt_min_runtime for queue in path)
    return (
        next((seconds for seconds in reclaim if seconds is not None), pool.reclaim_min_runtime),
        next((seconds for seconds in preempt if seconds is not None), pool.preempt_min_runtime),
    )


def _pod_weight(node: Node, workload: Workload, pod: Pod) -> int:
    """Return the pod's allocation in milli-GPUs, or in milli-CPUs on nodes without GPUs."""
    if node.gpus:
        return pod.milli * len(pod.devices)
    return next((role.request.cpu for role in leaf_roles(workload.tree) if role.name == pod.role), 0)
