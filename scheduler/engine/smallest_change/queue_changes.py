"""Proposed increases to limits and quotas of the pending workload's project and department."""

from collections.abc import Iterator

from berth.core.values.amounts import RESOURCES
from scheduler.engine.model import PoolQuota, Queue
from scheduler.engine.request_bounds import LIMIT_REASONS, NON_PREEMPTIBLE_REASONS
from scheduler.engine.smallest_change.change import Change, ChangeKind
from scheduler.engine.smallest_change.pending_case import PendingCase
from scheduler.engine.smallest_change.proposals import Proposals, propose_increases


def propose_higher_limits(case: PendingCase) -> Iterator[Proposals]:
    """Propose higher limits, up to the amount that admits all of the queue's workloads."""
    for bound in case.exceeded_bounds:
        limit = _pool_quota(case, bound.queue).limit[bound.kind]
        if bound.reason in LIMIT_REASONS and limit is not None and limit < bound.target:
            # Workloads that are ahead in the queue use a raised limit first.
            requested = case.queue_reports[bound.queue.name].requested[bound.kind]
            targets = [bound.target, max(bound.target, requested)]
            yield _quota_proposals(case, ChangeKind.LIMIT_RAISED, bound.queue, bound.kind, limit, targets)


def propose_higher_quotas(case: PendingCase) -> Iterator[Proposals]:
    """Propose higher quotas, up to the amount that brings the workload within its queue's quota."""
    for queue in case.path:
        for kind, quota in enumerate(_pool_quota(case, queue).quota):
            targets = [target for target in _target_quotas(case, queue, kind) if target > (quota or 0)]
            if quota is not None and targets:
                yield _quota_proposals(case, ChangeKind.QUOTA_RAISED, queue, kind, quota, targets)


def _target_quotas(case: PendingCase, queue: Queue, kind: int) -> Iterator[int]:
    """Yield the quotas that would admit the workload or bring it within quota."""
    may_borrow = _pool_quota(case, queue).over_quota
    for bound in case.exceeded_bounds:
        is_limit = bound.reason in LIMIT_REASONS and may_borrow
        if (bound.queue.name, bound.kind) == (queue.name, kind) and not is_limit:
            yield bound.target
    requested = case.requested[RESOURCES[kind]]
    if requested and (case.capacity_may_help or case.reasons & NON_PREEMPTIBLE_REASONS):
        yield case.allocated(queue, kind) + requested


def _quota_proposals(
    case: PendingCase, change_kind: ChangeKind, queue: Queue, kind: int, amount: int, targets: list[int]
) -> Proposals:
    resource = RESOURCES[kind]

    def raise_bound(after: int) -> Change:
        return Change(change_kind, queue.name, resource, amount, after, case.pool.name)

    return propose_increases(amount, resource, targets, raise_bound)


def _pool_quota(case: PendingCase, queue: Queue) -> PoolQuota:
    return queue.pool_quotas.get(case.pool.name, PoolQuota())
