"""Find limits and quotas that a request exceeds even if all other workloads end."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from berth.core.values.amounts import MILLI, RESOURCES, Bounds
from scheduler.engine.model import Node, NodeShape, Role, RoleGroup, Snapshot, Workload
from scheduler.engine.plan import Blocker, Reason, Rejection

LIMIT_REASONS = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})
NON_PREEMPTIBLE_REASONS = frozenset({Reason.NON_PREEMPTIBLE_OVER_QUOTA, Reason.DEPARTMENT_OVERSOLD})
QUOTA_REASONS = NON_PREEMPTIBLE_REASONS | {Reason.CLUSTER_QUOTA}


class RequestBounds:
    """Limits and quotas in a snapshot, for checking whether a single request exceeds them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._queues = {queue.name: queue for queue in snapshot.queues}
        # Results by the `id()` of blockers and tree. Each entry keeps both objects alive.
        self._results: dict[tuple[int, int], tuple[object, object, Blocker | None]] = {}

    def exceeded_by(self, workload: Workload, rejection: Rejection) -> Blocker | None:
        """Return the first blocker whose limit or quota the request alone exceeds, or None."""
        blockers, tree = rejection.blockers, workload.tree
        key = id(blockers), id(tree)  # most workloads in a long queue have the same blockers and tree
        if key not in self._results:
            self._results[key] = blockers, tree, self._find_exceeded_blocker(tree, rejection)
        return self._results[key][2]

    def _find_exceeded_blocker(self, tree: RoleGroup | Role, rejection: Rejection) -> Blocker | None:
        for blocker in rejection.blockers:
            for kind, bound in self._bounds(blocker, rejection.pool):
                if _min_amount(tree, kind, self._largest_devices.get(rejection.pool, 0)) > bound:
                    return blocker
        return None

    def _bounds(self, blocker: Blocker, pool: str) -> Iterator[tuple[int, int]]:
        """Yield (resource, bound) for each limit or quota that may block the workload."""
        if blocker.reason not in LIMIT_REASONS | QUOTA_REASONS:
            return
        resource, bound = blocker.numbers.get("resource"), blocker.numbers.get("bound")
        if resource in RESOURCES and isinstance(bound, int):
            yield RESOURCES.index(str(resource)), bound
        queue = self._queues.get(str(blocker.numbers.get("queue")))
        pool_quota = None if queue is None else queue.pool_quotas.get(pool)
        if pool_quota is None:
            return
        if blocker.reason in LIMIT_REASONS:
            yield from _finite_bounds(pool_quota.limit)
        if blocker.reason in NON_PREEMPTIBLE_REASONS or not pool_quota.over_quota:
            yield from _finite_bounds(pool_quota.quota)  # without borrowing, the quota is a limit, too

    @cached_property
    def _largest_devices(self) -> Mapping[str, int]:
        """Return the GPU memory of each pool's largest device, in MiB."""
        largest: dict[str, int] = {}
        shapes: list[tuple[str, Node | NodeShape]] = [(node.pool, node) for node in self._snapshot.nodes]
        shapes += [(pool.name, pool.node_shape) for pool in self._snapshot.pools if pool.node_shape]
        for name, shape in shapes:
            largest[name] = max(largest.get(name, 0), shape.gpu_memory_mib)
        return largest


def _finite_bounds(bounds: Bounds) -> Iterator[tuple[int, int]]:
    return ((kind, bound) for kind, bound in enumerate(bounds) if bound is not None)


def _min_amount(tree: RoleGroup | Role, kind: int, largest: int) -> int:
    if isinstance(tree, RoleGroup):
        return sum(sorted(_min_amount(child, kind, largest) for child in tree.children)[: tree.need])
    request, amount = tree.request, tree.request.amounts[kind]
    if RESOURCES[kind] == "gpu" and request.gpu_memory_mib and largest:
        amount = -(-MILLI * request.gpu_memory_mib // largest) * request.devices
    return amount * tree.min
