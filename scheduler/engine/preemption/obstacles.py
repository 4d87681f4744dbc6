"""Obstacles to evictions for a preemptor, found before any eviction is tried."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import delay_left, over_bounds, over_non_preemptible_quota, over_share
from scheduler.engine.board.gang import Gang, amounts_of, arrangements
from scheduler.engine.plan import Numbers, Reason
from scheduler.engine.preemption.bounds import shortfall, shortfall_without_victims
from scheduler.engine.preemption.policy import PreemptionPolicy
from scheduler.engine.preemption.selection import VictimSelection

Obstacle = tuple[Reason, Numbers]
Requested = tuple[int, int, int]


def obstacle(board: Board, policy: PreemptionPolicy) -> Obstacle | None:
    """Return an obstacle that no eviction could remove."""
    if not policy.may_evict():
        return over_share(policy.gang, policy.requested) or (Reason.NO_RECLAIMABLE_RESOURCES, {})
    return _out_of_bounds(board, policy.gang, policy.requested, type(policy))


def hopeless(
    board: Board, gang: Gang, policy_type: type[PreemptionPolicy], needs_share: bool
) -> Obstacle | None:
    """Return the reason that the policy can help the gang in no arrangement, or None if it might.

    `needs_share` is the policy's answer for this board.
    """
    if gang.simple:
        requested = gang.requested
        beyond = _beyond_share(gang, requested)
        if beyond is not None:
            if needs_share:
                return beyond
            if policy_type.finds_nothing_beyond_share(board, gang):
                return _out_of_bounds(board, gang, requested, policy_type) or shortfall_without_victims(
                    board.nodes.free(), requested
                )
    first: Obstacle | None = None
    for arrangement in arrangements(gang):
        policy = policy_type(board, gang, amounts_of(arrangement))
        short = obstacle(board, policy) or shortfall(VictimSelection(board, policy))
        if short is None:
            return None
        first = first or short
    return first


def _beyond_share(gang: Gang, requested: Requested) -> Obstacle | None:
    """Return the reason if the request exceeds the share, cached until the project's allocation changes."""
    cache, key = gang.account.cache, ("beyond", requested)
    if key not in cache:
        cache[key] = over_share(gang, requested)
    result: Obstacle | None = cache[key]
    return result


def _out_of_bounds(
    board: Board, gang: Gang, requested: Requested, policy: type[PreemptionPolicy]
) -> Obstacle | None:
    if gang.non_preemptible and (quota := over_non_preemptible_quota(gang, requested)) is not None:
        return quota
    bound = over_bounds(gang, requested)
    if bound is not None and bound[0] not in policy.relieves:
        return bound
    wait = delay_left(board, gang.workload)
    if wait:
        return Reason.IN_PREEMPTION_DELAY, {"seconds": wait}
    return None
