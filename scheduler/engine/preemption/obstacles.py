"""Obstacles that rule out evictions for a preemptor, checked before any eviction is tried."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import (
    exceeded_bound,
    exceeded_load_quota,
    exceeded_non_preemptible_quota,
    exceeded_share,
    remaining_preemption_delay,
)
from scheduler.engine.board.gang import Gang, arrangements, total_request
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.bounds import shortfall, shortfall_without_victims
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.victims.selection import VictimSelection

Obstacle = tuple[Reason, Numbers]
Requested = tuple[int, int, int]


def eviction_obstacle(board: Board, policy: PreemptionPolicy) -> Obstacle | None:
    """Return an obstacle that evictions cannot remove, or None."""
    if not policy.may_evict():
        return exceeded_share(policy.gang, policy.requested) or (Reason.NO_RECLAIMABLE_RESOURCES, {})
    return _bound_obstacle(board, policy.gang, policy.requested, type(policy))


def policy_obstacle(
    board: Board, gang: Gang, policy_type: type[PreemptionPolicy], rejects_gangs_over_share: bool
) -> Obstacle | None:
    """Return what keeps the policy from making room for the gang, or None.

    `rejects_gangs_over_share` is the result of `policy_type.rejects_gangs_over_share(board)`.
    """
    if gang.simple:
        requested = gang.requested
        over_share = _share_obstacle(gang, requested)
        if over_share is not None:
            if rejects_gangs_over_share:
                return over_share
            if policy_type.has_no_victims_if_over_share(board, gang):
                return _bound_obstacle(board, gang, requested, policy_type) or shortfall_without_victims(
                    board.nodes.free_resources(), requested
                )
    first: Obstacle | None = None
    for arrangement in arrangements(gang):
        policy = policy_type(board, gang, total_request(arrangement))
        short = eviction_obstacle(board, policy) or shortfall(VictimSelection(board, policy), arrangement)
        if short is None:
            return None
        first = first or short
    return first


def _share_obstacle(gang: Gang, requested: Requested) -> Obstacle | None:
    cache, key = gang.account.cache, ("beyond", requested)
    if key not in cache:
        cache[key] = exceeded_share(gang, requested)
    result: Obstacle | None = cache[key]
    return result


def _bound_obstacle(
    board: Board, gang: Gang, requested: Requested, policy: type[PreemptionPolicy]
) -> Obstacle | None:
    if gang.non_preemptible and (quota := exceeded_non_preemptible_quota(gang, requested)) is not None:
        return quota
    if (load := exceeded_load_quota(gang)) is not None:
        return load
    bound = exceeded_bound(gang, requested)
    if bound is not None and bound[0] not in policy.relievable_bounds:
        return bound
    wait = remaining_preemption_delay(board, gang.workload)
    if wait:
        return Reason.IN_PREEMPTION_DELAY, {"until": board.now + wait, "seconds": wait}
    return None
