"""Select the workloads that may start, and find the limits and quotas that block the rest."""

from collections.abc import Iterator, Sequence

from berth.core.values.amounts import MILLI, RESOURCES
from berth.core.wording.words import format_number
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, PendingGroup, arrangements
from scheduler.engine.board.ledger import (
    KINDS,
    MEMORY,
    NO_BOUND,
    QueueAccount,
    QueueGroup,
    first_exceeded_resource,
    replica_load,
    siblings_over_quota,
)
from scheduler.engine.model import ClusterQuota, Workload
from scheduler.engine.plan import Numbers, Reason

_LOWEST, _ELASTIC = "lowest priority", "elastic"


def find_pending_groups(board: Board, choice: int | None = None) -> list[PendingGroup]:
    """Return the pending groups with a gang that may start.

    With `choice`, only groups that list this pool at the position `choice` are returned.
    """
    served, evicted, result = board.served, board.cycle.evicted, []
    for group in board.pending_groups.values():
        group.at = 0  # restart, because a rolled-back start may have made a skipped gang pending again
        if choice is None or group.choice == choice:
            gang = group.gangs[0]
            untouched = not gang.pod_count and gang.name not in served and gang.name not in evicted
            if untouched or first_pending_gang(board, group) is not None:
                result.append(group)
    return result


def first_pending_gang(board: Board, group: PendingGroup) -> Gang | None:
    gangs = group.gangs
    while group.at < len(gangs):
        if is_still_pending(board, gangs[group.at]):
            return gangs[group.at]
        group.at += 1
    return None


def remaining_preemption_delay(board: Board, workload: Workload) -> int:
    """Return the seconds until the workload may evict other workloads."""
    delay = workload.preemption_delay
    if delay is None:
        delay = board.pool.preemption_delay if board.can_add_nodes else 0
    return max(0, workload.submitted + delay - board.now) if delay > 0 else 0


def is_in_backoff(board: Board, workload: Workload) -> bool:
    """Return whether backoff still prevents the workload from starting or scaling up."""
    return workload.backoff_until is not None and workload.backoff_until > board.now


def is_still_pending(board: Board, gang: Gang) -> bool:
    if gang.name in board.served or gang.name in board.cycle.evicted:
        return False
    return not (gang.pod_count and gang.meets_minimum)


def exceeded_bound(
    gang: Gang, requested: Sequence[int], arrangement: Arrangement | None = None
) -> tuple[Reason, Numbers] | None:
    """Return the first limit or quota that the request would exceed, or None.

    Limits come before quotas, and the project before its department. `arrangement` defaults to the gang's
    first arrangement.
    """
    return next(exceeded_bounds(gang, requested, arrangement), None)


def exceeded_bounds(
    gang: Gang, requested: Sequence[int], arrangement: Arrangement | None = None
) -> Iterator[tuple[Reason, Numbers]]:
    """Yield the limits that the request would exceed, then the quotas, the project's first."""
    for account in gang.account.path:
        kind = (
            first_exceeded_resource(account.allocated, account.own_limit, requested)
            if account.has_limit
            else None
        )
        if kind is not None:
            reason = Reason.DEPARTMENT_LIMIT if account.children else Reason.PROJECT_LIMIT
            numbers = _bound_numbers(account, account.allocated, account.own_limit, kind, requested)
            yield (
                reason,
                numbers if account.group is None else _group_limit_numbers(account.group, numbers, kind),
            )
    if gang.account.pool_quota.cluster_quotas:
        exceeded = exceeded_load_quota(gang, arrangement) or _exceeded_cluster_quota(gang.account, requested)
        if exceeded is not None:
            yield exceeded
    yield from _exceeded_non_preemptible_quotas(gang, requested)


def exceeded_load_quota(gang: Gang, arrangement: Arrangement | None = None) -> tuple[Reason, Numbers] | None:
    """Return the reason if the gang would exceed a cluster quota on CPU limits, memory limits or pod counts,
    else None. Evictions do not help.
    """
    account = gang.account
    for quota in account.load_quotas:
        needs = next(arrangements(gang)) if arrangement is None else arrangement
        requested = sum(need.count * replica_load(need.part.request)[quota.kind] for need in needs)
        used = quota.used + account.cluster_load[quota.kind]
        if requested > 0 and used + requested > quota.hard:
            return Reason.CLUSTER_QUOTA, _cluster_quota_numbers(quota, used, requested)
    return None


def _exceeded_cluster_quota(account: QueueAccount, requested: Sequence[int]) -> tuple[Reason, Numbers] | None:
    for kind, resource in enumerate(RESOURCES):
        for quota in account.pool_quota.cluster_quotas if requested[kind] > 0 else ():
            used = quota.used + account.allocated[kind]
            if quota.kind == resource and used + requested[kind] > quota.hard:
                return Reason.CLUSTER_QUOTA, _cluster_quota_numbers(quota, used, requested[kind])
    return None


def _cluster_quota_numbers(quota: ClusterQuota, used: int, requested: int) -> Numbers:
    return {
        "cluster_quota": quota.name,
        "namespace": quota.namespace,
        "cluster_resource": quota.resource,
        "resource": quota.kind.removeprefix("limit_"),
        "requested": requested,
        "used": used,
        "bound": quota.hard,
        "missing": used + requested - quota.hard,
    }


def exceeded_non_preemptible_quota(gang: Gang, requested: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Return the quota that a non-preemptible gang would exceed, or None. Evictions do not help."""
    return next(_exceeded_non_preemptible_quotas(gang, requested), None)


def _exceeded_non_preemptible_quotas(
    gang: Gang, requested: Sequence[int]
) -> Iterator[tuple[Reason, Numbers]]:
    if not gang.non_preemptible:
        return
    project = gang.account
    for account in project.path:
        kind = first_exceeded_resource(account.non_preemptible, account.non_preemptible_quota, requested)
        if kind is not None:
            reason = Reason.DEPARTMENT_OVERSOLD if account.children else Reason.NON_PREEMPTIBLE_OVER_QUOTA
            bound = account.non_preemptible_quota
            numbers = _bound_numbers(account, account.non_preemptible, bound, kind, requested)
            yield (
                reason,
                numbers if account.group is None else _group_quota_numbers(account.group, numbers, kind),
            )
        elif account is project and project.quota_holds:
            exceeded = (hold.conflict_numbers(gang, requested) for hold in project.quota_holds)
            held = next((numbers for numbers in exceeded if numbers is not None), None)
            if held is not None:
                yield Reason.NON_PREEMPTIBLE_OVER_QUOTA, held


def _bound_numbers(
    account: QueueAccount, allocated: Sequence[int], bound: Sequence[int], kind: int, requested: Sequence[int]
) -> Numbers:
    return {
        "queue": account.name,
        "resource": RESOURCES[kind],
        "requested": requested[kind],
        "allocated": allocated[kind],
        "bound": bound[kind] if bound[kind] < NO_BOUND else None,
        "missing": allocated[kind] + requested[kind] - bound[kind],
        **({} if account.group is None else _quota_group_numbers(account.group, kind)),
    }


def _quota_group_numbers(group: QueueGroup, kind: int) -> Numbers:
    by_pool = {
        pool: account.allocated[kind] for pool, account in group.accounts.items() if account.allocated[kind]
    }
    scale = 1 if kind == MEMORY else MILLI
    return {
        "group": group.name,
        "group_quota": group.pool_quota.quota[kind],
        "group_allocated": sum(by_pool.values()),
        "group_pools": ", ".join(
            f"{format_number(amount / scale)} in {pool}" for pool, amount in by_pool.items()
        ),
    }


def _group_limit_numbers(group: QueueGroup, numbers: Numbers, kind: int) -> Numbers:
    pool_quota = group.pool_quota
    bounds = [pool_quota.limit[kind], None if pool_quota.over_quota else pool_quota.quota[kind]]
    bound = min(amount for amount in bounds if amount is not None)
    return _use_group_amounts(
        numbers, sum(account.allocated[kind] for account in group.accounts.values()), bound
    )


def _group_quota_numbers(group: QueueGroup, numbers: Numbers, kind: int) -> Numbers:
    allocated = sum(account.non_preemptible[kind] for account in group.accounts.values())
    return _use_group_amounts(numbers, allocated, group.pool_quota.quota[kind] or 0)


def _use_group_amounts(numbers: Numbers, allocated: int, bound: int) -> Numbers:
    missing = allocated + int(numbers["requested"] or 0) - bound
    return {**numbers, "allocated": allocated, "bound": bound, "missing": missing}


def exceeded_share(gang: Gang, requested: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Return the reason if the request would put the project over both quota and fair share, or else None."""
    return _exceeded_share(gang.account, requested)


def exceeded_share_at_any_level(gang: Gang, requested: Sequence[int]) -> tuple[Reason, Numbers] | None:
    """Return a reason if the request would put one of the gang's queues above both its quota and its fair
    share, else None.
    """
    kinds = tuple(kind for kind in KINDS if requested[kind] > 0)
    for number, step in enumerate(gang.account.path):
        result = _exceeded_share(step, requested)
        own = gang.account.path[number - 1]
        if result is not None and not (
            number and any(a is not own for a in siblings_over_quota(own, step.children, kinds))
        ):
            return result
    return None


def _exceeded_share(account: QueueAccount, requested: Sequence[int]) -> tuple[Reason, Numbers] | None:
    kind = first_exceeded_resource(account.allocated, account.deserved, requested)
    if kind is None:
        return None
    return Reason.WOULD_EXCEED_FAIR_SHARE, {
        **_bound_numbers(account, account.allocated, account.deserved, kind, requested),
        "share": account.share[kind],
        "quota": account.quota[kind],  # the quota is finite, because the request exceeds it
        "takes_turns": bool(account.relative_usage),
    }


def lowest_running_priority(board: Board, account: QueueAccount) -> int | None:
    """Return the lowest priority among the project's running gangs, or None if there are none."""
    if _LOWEST not in account.cache:
        gangs = board.by_project.get(account, {}).values()
        account.cache[_LOWEST] = min((gang.workload.priority for gang in gangs), default=None)
    result: int | None = account.cache[_LOWEST]
    return result


def has_elastic_gang(board: Board, account: QueueAccount) -> bool:
    if _ELASTIC not in account.cache:
        gangs = board.by_project.get(account, {}).values()
        account.cache[_ELASTIC] = any(gang.is_elastic for gang in gangs)
    result: bool = account.cache[_ELASTIC]
    return result
