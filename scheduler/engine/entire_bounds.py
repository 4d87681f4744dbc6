"""Limits and quotas that a request alone exceeds, so that the end of other workloads cannot help."""

from berth.core.amounts import MILLI, RESOURCES
from scheduler.engine.model import Group, Role, Snapshot, Workload
from scheduler.engine.plan import Blocker, Reason, Rejection

LIMIT_REASONS = frozenset({Reason.PROJECT_LIMIT, Reason.DEPARTMENT_LIMIT})
QUOTA_REASONS = frozenset({
    Reason.CLUSTER_QUOTA, Reason.NON_PREEMPTIBLE_OVER_QUOTA, Reason.DEPARTMENT_OVERSOLD,
})  # fmt: skip


def exceeded_entire_bound(snapshot: Snapshot, workload: Workload, rejection: Rejection) -> Blocker | None:
    """Return the first blocker whose limit or quota is lower than the request alone, or None.

    If a group needs only some of its children, the least demanding ones count. GPU memory counts as a share
    of the pool's largest device.
    """
    for blocker in rejection.blockers:
        resource, bound = blocker.numbers.get("resource"), blocker.numbers.get("bound")
        is_bound = blocker.reason in LIMIT_REASONS | QUOTA_REASONS and resource in RESOURCES
        # Only a request above the bound is compared in detail, because queues can be long.
        if is_bound and isinstance(bound, int) and int(blocker.numbers.get("requested") or 0) > bound:
            largest = _largest_device(snapshot, rejection.pool)
            if _least_amount(workload.tree, RESOURCES.index(str(resource)), largest) > bound:
                return blocker
    return None


def _largest_device(snapshot: Snapshot, pool: str) -> int:
    """Return the GPU memory of the pool's largest device in MiB, or 0 if the pool has no GPUs."""
    shapes = (other.node_shape for other in snapshot.pools if other.name == pool)
    nodes = (node for node in snapshot.nodes if node.pool == pool)
    return max((shape.gpu_memory_mib for shape in (*nodes, *shapes) if shape is not None), default=0)


def _least_amount(tree: Group | Role, kind: int, largest: int) -> int:
    """Return the least amount of a resource with which the workload can run. `largest` is in MiB."""
    if isinstance(tree, Group):
        return sum(sorted(_least_amount(child, kind, largest) for child in tree.children)[: tree.need])
    request, amount = tree.request, tree.request.amounts[kind]
    if RESOURCES[kind] == "gpu" and request.gpu_memory_mib and largest:
        amount = -(-MILLI * request.gpu_memory_mib // largest) * request.devices
    return amount * tree.min
