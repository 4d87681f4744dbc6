"""Look up quotas by pool and queue. A group's quota applies to each of its pools."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from pools.models import NodePool
from projects.models import Quota
from scheduler.loop.queries import QUOTAS
from scheduler.models import QueueStatus
from scheduler.reports.queues.queue_totals import ZERO, Key, Owner

Bound = tuple[int | None, int | None, int | None]
AllocatedOutside = Mapping[tuple[int, Owner], Sequence[int]]  # allocated amounts by group ID and owner


def quotas_by_queue() -> dict[Key, Quota]:
    """Return each queue's quota in each pool. A group's quota is returned for all of its pools."""
    rows = list(QUOTAS())
    members = pool_ids_by_group() if any(row.group_id is not None for row in rows) else {}
    return {(pool, quota_owner(row)): row for row in rows for pool in quota_pools(row, members)}


def pool_ids_by_group() -> dict[int, list[int]]:
    """Return each quota group's pool IDs."""
    rows = NodePool.objects.filter(quota_group__isnull=False).order_by("name")
    members: dict[int, list[int]] = defaultdict(list)
    for pool, group in rows.values_list("pk", "quota_group_id"):
        if group is not None:
            members[group].append(pool)
    return members


def quota_pools(row: Quota, members: Mapping[int, Sequence[int]]) -> Sequence[int]:
    """Return the IDs of the pools that a quota applies to."""
    if row.group_id is not None:
        return members.get(row.group_id, ())
    return () if row.pool_id is None else (row.pool_id,)


def quota_owner(row: Quota) -> Owner:
    return row.department_id, row.project_id


def sum_over_quota_groups(
    allocated: Mapping[Key, Sequence[int]], quotas: Mapping[Key, Quota]
) -> dict[Key, Sequence[int]]:
    """Return the allocations. Those that count towards a group quota are summed over the group's pools."""
    totals: dict[int, list[int]] = {}
    for key, row in quotas.items():
        if row.group_id is not None:
            total = totals.setdefault(row.pk, [0, 0, 0])
            _add_amounts(total, allocated.get(key, ZERO))
    grouped = {key: totals[row.pk] for key, row in quotas.items() if row.group_id is not None}
    return {**allocated, **grouped}


def remaining_quotas(allocated: Mapping[Key, Sequence[int]], quotas: Mapping[Key, Quota]) -> dict[Key, Bound]:
    """Return each queue's quota in each pool, minus its allocations in the group's other pools."""
    totals = sum_over_quota_groups(allocated, quotas)
    return {
        key: subtract_allocated_amounts(
            (row.gpu_milli, row.cpu_milli, row.memory_mib),
            ()
            if row.group_id is None
            else [total - mine for total, mine in zip(totals[key], allocated.get(key, ZERO), strict=True)],
        )
        for key, row in quotas.items()
    }


def subtract_allocated_amounts(bound: Bound, elsewhere: Iterable[int]) -> Bound:
    amounts = list(elsewhere) or ZERO
    gpu, cpu, memory = (
        None if quota is None else max(0, quota - amount)
        for quota, amount in zip(bound, amounts, strict=True)
    )
    return gpu, cpu, memory


def allocated_amounts_in_other_pools(pools: Collection[NodePool]) -> dict[tuple[int, Owner], list[int]]:
    """Return the queues' allocations in other pools of the same quota groups, keyed by group and owner.

    The amounts are from the last cycle and include reservations.
    """
    groups = {pool.quota_group_id for pool in pools} - {None}
    rows = QueueStatus.objects.none()
    if groups:
        rows = QueueStatus.objects.filter(pool__quota_group__in=groups).exclude(pool__in=pools)
    result: dict[tuple[int, Owner], list[int]] = defaultdict(lambda: [0, 0, 0])
    for group, department, project, allocated, reserved in rows.values_list(
        "pool__quota_group_id", "department_id", "project_id", "allocated", "reserved"
    ):
        _add_amounts(result[group, (department, project)], allocated)
        _add_amounts(result[group, (department, project)], reserved)
    return dict(result)


def remaining_gpus(row: Quota, outside: AllocatedOutside) -> int | None:
    """Return the quota in milli-GPU, minus the queue's allocations in other pools. None means unlimited."""
    return remaining_bound(row, outside)[0]


def remaining_bound(row: Quota, outside: AllocatedOutside, prefix: str = "") -> Bound:
    """Return the quota (or, with the prefix `limit_`, the limit) minus the allocations in other pools."""
    gpu, cpu, memory = (getattr(row, f"{prefix}{name}") for name in ("gpu_milli", "cpu_milli", "memory_mib"))
    elsewhere = outside.get((row.group_id, quota_owner(row)), ZERO) if row.group_id is not None else ZERO
    return subtract_allocated_amounts((gpu, cpu, memory), elsewhere)


def _add_amounts(total: list[int], more: Sequence[int]) -> None:
    for kind, amount in enumerate(more):
        total[kind] += amount
