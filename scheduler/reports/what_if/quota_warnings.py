"""Find quotas that are oversubscribed or below the current allocation."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from berth.core.values.amounts import MILLI, RESOURCES, Bounds, sum_bounds
from berth.core.wording.words import format_amount
from scheduler.engine import model
from scheduler.engine.explain.new_nodes import new_node_shape

NO_POOL_QUOTA = model.PoolQuota()
Sums = list[int]


@dataclass(frozen=True, slots=True)
class QuotaWarning:
    """Warning about a queue's quota in a pool or a quota group.

    The code is projects_above_department, departments_above_pool, below_non_preemptible or
    limit_below_allocated.
    """

    code: str
    queue: str
    pool: str  # name of the pool or the group
    message: str


@dataclass(frozen=True, slots=True)
class _PoolOrGroup:
    """Pools that share a quota: a single pool, or the pools of a quota group."""

    name: str
    pools: tuple[str, ...]

    def total_quota(self, queue: model.Queue) -> Bounds:
        """Return the queue's total quota in `pools`. A group's quota is counted once."""
        by_name = {}
        for pool in self.pools:
            pool_quota = queue.pool_quotas.get(pool, NO_POOL_QUOTA)
            by_name[pool_quota.group or f"pool {pool}"] = pool_quota.quota
        gpu, cpu, memory = (sum_bounds(column) for column in zip(*by_name.values(), strict=True))
        return Bounds(gpu, cpu, memory)

    def sum_over_pools(self, amounts: Mapping[tuple[str, str], Sums], queue: str) -> Sums:
        return [sum(column) for column in zip(*[amounts[queue, pool] for pool in self.pools], strict=True)]


def find_warnings(snapshot: model.Snapshot, edited_queues: Iterable[tuple[str, str]]) -> list[QuotaWarning]:
    """Return the warnings for the edited (queue, pool) pairs and for the departments and pools above them."""
    queues = {queue.name: queue for queue in snapshot.queues}
    tops = [queue for queue in snapshot.queues if queue.parent is None]
    allocated, non_preemptible = _allocations(snapshot, queues)
    result: list[QuotaWarning] = []
    checked: set[tuple[str, str, str]] = set()

    def mark_as_checked(what: str, name: str, place: _PoolOrGroup) -> bool:
        is_new = (what, name, place.name) not in checked
        checked.add((what, name, place.name))
        return is_new

    for name, pool in edited_queues:
        queue = queues[name]
        place = _pool_or_group(pool, [queue])
        if mark_as_checked("queue", name, place):
            amounts = place.sum_over_pools(allocated, name), place.sum_over_pools(non_preemptible, name)
            result += _queue_warnings(queue, place, pool, *amounts)
        top = queues[queue.parent] if queue.parent else queue
        inner = [child for child in snapshot.queues if child.parent == top.name]
        place = _pool_or_group(pool, [top, *inner])
        if mark_as_checked("department", top.name, place):
            result += _department_warnings(top, inner, place)
        place = _pool_or_group(pool, tops)
        if queue.parent is None and mark_as_checked("pool", "", place):
            result += _pool_warnings(place, tops, snapshot)
    return result


def _pool_or_group(pool: str, queues: Iterable[model.Queue]) -> _PoolOrGroup:
    pool_quotas = [queue.pool_quotas for queue in queues]
    names = (entry[pool].group for entry in pool_quotas if pool in entry)
    group = next((name for name in names if name), "")
    if not group:
        return _PoolOrGroup(pool, (pool,))
    return _PoolOrGroup(group, tuple(sorted({
        name for entry in pool_quotas for name, pool_quota in entry.items() if pool_quota.group == group
    })))  # fmt: skip


def _queue_warnings(
    queue: model.Queue, place: _PoolOrGroup, pool: str, allocated: Sums, non_preemptible: Sums
) -> Iterator[QuotaWarning]:
    pool_quota = queue.pool_quotas.get(pool, NO_POOL_QUOTA)
    for kind, resource in enumerate(RESOURCES):
        quota, limit = pool_quota.quota[kind], pool_quota.limit[kind]
        if quota is not None and non_preemptible[kind] > quota:
            amount = format_amount(resource, non_preemptible[kind])
            yield QuotaWarning(
                "below_non_preemptible", queue.name, place.name,
                f"{queue.name} has {amount} allocated to non-preemptible workloads, more than its quota "
                f"of {format_amount(resource, quota)}. These workloads keep running, but no more can start.",
            )  # fmt: skip
        if limit is not None and allocated[kind] > limit:
            yield QuotaWarning(
                "limit_below_allocated", queue.name, place.name,
                f"{queue.name} has {format_amount(resource, allocated[kind])} allocated, more than its limit "
                f"of {format_amount(resource, limit)}. Nothing is stopped, but nothing more can start.",
            )  # fmt: skip


def _department_warnings(
    top: model.Queue, inner: Iterable[model.Queue], place: _PoolOrGroup
) -> Iterator[QuotaWarning]:
    quotas = [place.total_quota(queue) for queue in inner]
    for kind, resource, quota in _finite_bounds(place.total_quota(top)):
        total = sum_bounds(bounds[kind] for bounds in quotas)
        if total is None or total > quota:
            yield QuotaWarning(
                "projects_above_department",
                top.name,
                place.name,
                f"Project quotas in {top.name} add up to {format_amount(resource, total)}, more than the "
                f"department's own quota ({format_amount(resource, quota)}). "
                "Not all of them can be used at the same time.",
            )


def _pool_warnings(
    place: _PoolOrGroup, tops: Iterable[model.Queue], snapshot: model.Snapshot
) -> Iterator[QuotaWarning]:
    capacity = _largest_capacity(place, snapshot)
    quotas = [place.total_quota(queue) for queue in tops]
    owner = "the pool has" if place.pools == (place.name,) else "its pools have"
    for kind, resource in enumerate(RESOURCES):
        total = sum_bounds(bounds[kind] for bounds in quotas if bounds[kind] is not None)
        if total is not None and total > capacity[kind]:
            most = ("at most " if capacity[kind] else "") + format_amount(resource, capacity[kind])
            yield QuotaWarning(
                "departments_above_pool", "", place.name,
                f"Department quotas in {place.name} add up to {format_amount(resource, total)}; "
                f"{owner} {most}.",
            )  # fmt: skip


def _largest_capacity(place: _PoolOrGroup, snapshot: model.Snapshot) -> Sums:
    """Return the capacity of the pools at maximum size, or of their current nodes if that is more."""
    result = [0, 0, 0]
    for pool in snapshot.pools:
        if pool.name not in place.pools:
            continue
        nodes = [node for node in snapshot.nodes if node.pool == pool.name]
        present = [sum(column) for column in zip(*(node.capacity for node in nodes), strict=True)] or [
            0,
            0,
            0,
        ]
        shape = new_node_shape(pool, nodes)
        count = (pool.nodes_max if pool.nodes_ever is None else pool.nodes_ever) or 0
        one = (shape.gpus * MILLI, shape.cpu, shape.memory_mib) if shape else (0, 0, 0)
        for kind in range(len(RESOURCES)):
            result[kind] += max(count * one[kind], present[kind])
    return result


def _finite_bounds(bounds: Bounds) -> Iterator[tuple[int, str, int]]:
    for kind, resource in enumerate(RESOURCES):
        bound = bounds[kind]
        if bound is not None:
            yield kind, resource, bound


def _allocations(
    snapshot: model.Snapshot, queues: Mapping[str, model.Queue]
) -> tuple[Mapping[tuple[str, str], Sums], Mapping[tuple[str, str], Sums]]:
    allocated: dict[tuple[str, str], Sums] = defaultdict(lambda: [0, 0, 0])
    non_preemptible: dict[tuple[str, str], Sums] = defaultdict(lambda: [0, 0, 0])
    pools = {node.name: node.pool for node in snapshot.nodes}
    for workload in snapshot.workloads:
        roles = {role.name: role for role in model.roles_in(workload.tree)} if workload.pods else {}
        path = [workload.project, queues[workload.project].parent]
        for pod in workload.pods:
            if pod.state is model.PodState.COMPLETED or pod.node not in pools or pod.role not in roles:
                continue
            request = roles[pod.role].request
            amounts = (pod.milli * len(pod.devices), request.cpu, request.memory_mib)
            for name in path:
                if name is not None:
                    _add_amounts(allocated[name, pools[pod.node]], amounts)
                    if not workload.preemptible:
                        _add_amounts(non_preemptible[name, pools[pod.node]], amounts)
    return allocated, non_preemptible


def _add_amounts(sums: Sums, amounts: tuple[int, int, int]) -> None:
    for kind, more in enumerate(amounts):
        sums[kind] += more
