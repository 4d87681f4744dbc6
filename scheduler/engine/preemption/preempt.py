"""Evict victims for one preemptor: check bounds, propose victims, simulate and accept."""

from collections.abc import Iterable, Iterator

from scheduler.engine.board.board import Board, Trial
from scheduler.engine.board.eligible import exceeded_bound, find_pending_groups, first_pending
from scheduler.engine.board.gang import Arrangement, Gang, PendingGroup, arrangements, total_request
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.explain.reasons import UNSCHEDULABLE_REASONS
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind, Numbers, Reason
from scheduler.engine.preemption.audit import eviction_records
from scheduler.engine.preemption.bounds import reclaim_numbers, shortfall
from scheduler.engine.preemption.obstacles import Obstacle, obstacle, policy_obstacle
from scheduler.engine.preemption.outcome import Outcome, resolve_outcome
from scheduler.engine.preemption.policy import PreemptionPolicy
from scheduler.engine.preemption.proposals import (
    cheaper_single_victims,
    make_room_under_limits,
    propose_by_domain,
    propose_by_node,
    propose_by_prefix,
    single_victim_may_suffice,
)
from scheduler.engine.preemption.selection import VictimSelection
from scheduler.engine.preemption.victim_costs import OfferCache
from scheduler.engine.preemption.victims import Victim

MAX_PROPOSALS = 24  # per preemptor and policy; not a time limit, so that every machine decides alike


def preempt_for_pending(board: Board, choice: int, policy_type: type[PreemptionPolicy]) -> None:
    """Try a policy for all pending gangs in queue order.

    The first gang of a pending group represents the group. Once it is placed, the order is
    recomputed and the next gang follows. No gang is placed twice: a gang that loses its new place
    waits for the next cycle, so that two gangs cannot keep displacing each other.
    """
    done: set[str] = set()
    candidates = {
        group
        for group in find_pending_groups(board, choice)
        if not UNSCHEDULABLE_REASONS & group.reasons.keys()
    }
    served = not _all_refused(board, candidates, policy_type)
    while served:
        served = False
        order = PendingOrder(board, candidates)
        for group, gang in order:
            order.leave(group)
            if gang.name in done:
                candidates.remove(group)
                continue
            done.add(gang.name)
            served = _try_policy(board, gang, policy_type)
            if not served or first_pending(board, group) is gang:
                candidates.remove(group)
            if served:
                break


def _all_refused(
    board: Board, candidates: Iterable[PendingGroup], policy_type: type[PreemptionPolicy]
) -> bool:
    """Refuse all groups without trials and return True if the policy can help none of them.

    As long as no gang is placed, all groups see the same board and their order does not matter.
    """
    refusals: list[tuple[Gang, Reason | None, Numbers]] = []
    needs_share, unreported = policy_type.needs_share(board), policy_type.unreported
    for group in candidates:
        gang = group.gangs[group.at]  # still pending, because nothing has changed
        obstacle = policy_obstacle(board, gang, policy_type, needs_share)
        if obstacle is None:
            return False
        reason, numbers = obstacle
        refusals.append((gang, reason if numbers and reason not in unreported else None, numbers))
    board.refuse_all(refusals)
    return True


def _try_policy(board: Board, gang: Gang, policy_type: type[PreemptionPolicy]) -> bool:
    """Try a policy for one gang. Return whether the gang was placed or fits without evictions."""
    with board.trial(gang, default_reason=None) as trial:
        policy = policy_type(board, gang, gang.requested)
        refusal = _try_arrangements(trial, policy, arrangements(gang))
        if refusal is not None and refusal[1] and refusal[0] not in policy_type.unreported:
            trial.refuse(*refusal)
    return refusal is None


def preempt_for_scale_up(
    board: Board, gang: Gang, arrangement: Arrangement, policy_type: type[PreemptionPolicy]
) -> bool:
    """Try a policy for one scale-up step. Return whether the step was placed."""
    policy = policy_type(board, gang, total_request(arrangement))
    with board.trial(gang, default_reason=None) as trial:
        _try_arrangements(trial, policy, (arrangement,))
    return trial.kind is not None


def _try_arrangements(
    trial: Trial, policy: PreemptionPolicy, choices: Iterable[Arrangement]
) -> Obstacle | None:
    """Accept the first arrangement that can be placed.

    Return None if an arrangement was accepted or fits without evictions, else the first obstacle.
    """
    board, gang = trial.board, trial.gang
    result: Obstacle | None = None
    for arrangement in choices:
        requested = total_request(arrangement)
        policy = policy if requested == policy.requested else type(policy)(board, gang, requested)
        short = obstacle(board, policy) or shortfall(VictimSelection(board, policy))
        if short is not None:
            result = result or short
            continue
        before, over_bounds_before = _allocated_by_queue(board), exceeded_bound(gang, requested) is not None
        budget = _Budget(min(MAX_PROPOSALS, policy.max_trials))
        for selection in _all_proposals(board, policy, arrangement, budget):
            outcome = resolve_outcome(selection, trial.start, arrangement, policy.max_moves)
            if outcome is not None and not outcome.evicted and not outcome.moved:
                board.rewind(trial.start)
                return None  # the gang fits without evictions, so `allocate` places it
            if outcome is not None:
                trial.waits = over_bounds_before and outcome.stops_running_pods(board)
                records = eviction_records(selection, outcome, before)
                trial.accept(policy.kind if records else Kind.START, _message(policy, outcome), records)
                return None
        board.rewind(trial.start)
        result = result or _no_arrangement_refusal(board, policy, budget)
    return result


def _no_arrangement_refusal(
    board: Board, policy: PreemptionPolicy, budget: "_Budget"
) -> tuple[Reason, Numbers]:
    """Return the refusal of a gang for which the sums suffice but no attempt succeeded."""
    reasons = board.reasons(policy.gang)
    short = reasons.get(Reason.FRAGMENTED) or reasons.get(Reason.WAITING_FOR_CAPACITY) or {}
    numbers = reclaim_numbers(VictimSelection(board, policy), short.get("resource"))
    if budget.left <= 0:
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {"attempts": budget.total, **numbers}
    return Reason.NO_RECLAIMABLE_RESOURCES, numbers


class _Budget:
    """Number of proposals that may still be tried."""

    def __init__(self, total: int) -> None:
        self.total = self.left = total

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def reset(self) -> "_Budget":
        self.left = self.total
        return self


def _allocated_by_queue(board: Board) -> dict[QueueAccount, tuple[int, ...]]:
    return {account: tuple(account.allocated) for account in board.ledger.accounts.values()}


def _all_proposals(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: _Budget
) -> Iterator[VictimSelection]:
    yield from _proposals(board, policy, arrangement, budget)
    if policy.retries_within_share():
        yield from _proposals(board, policy, arrangement, budget.reset())
    if policy.retries_without_new_gangs():
        yield from _proposals(board, policy, arrangement, budget.reset())


def _proposals(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: _Budget
) -> Iterator[VictimSelection]:
    """Yield victim selections, each applied to the board and undone before the next."""
    start, banned, offer_cache, free = board.mark(), set[int](), OfferCache(), board.nodes.free()
    if not any(need.scopes for need in arrangement):
        single_may_suffice = single_victim_may_suffice(VictimSelection(board, policy), arrangement, free)
        replicas = sum(need.count for need in arrangement)
        while budget.spend() and board.cycle.placement_attempts.may_try(policy.gang, replicas):
            board.attempt()
            selection = VictimSelection(board, policy)
            if not propose_by_node(selection, arrangement, banned, offer_cache):
                board.rewind(start)
                break
            if single_may_suffice and not banned and sum(victim.whole for victim in selection.selected) > 1:
                stopped = list(selection.selected)
                board.rewind(start)
                yield from _single_victim_selections(
                    board,
                    policy,
                    arrangement,
                    cheaper_single_victims(VictimSelection(board, policy), arrangement, free, stopped),
                )
                selection = VictimSelection(board, policy)
                propose_by_node(selection, arrangement, banned, offer_cache)
            yield selection
            cleared = {board.nodes.index[pod.node] for victim in selection.selected for _, pod in victim.pods}
            board.rewind(start)
            if not cleared - banned:
                break
            banned.add(min(cleared - banned))
    else:
        for domain, victims in propose_by_domain(board, policy, arrangement):
            if not budget.spend():
                break
            board.attempt()
            selection = VictimSelection(board, policy)
            all_selected = all(selection.take(victim) for victim in victims)
            if all_selected and find_room(board, policy.gang, arrangement, Horizon.LEAVING, domain):
                yield selection
            board.rewind(start)
    selection = VictimSelection(board, policy)
    for _ in propose_by_prefix(selection, arrangement):
        if not budget.spend():
            break
        board.attempt()
        yield selection
    board.rewind(start)


def _single_victim_selections(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, victims: Iterable[Victim]
) -> Iterator[VictimSelection]:
    start = board.mark()
    for victim in victims:
        board.attempt()
        selection = VictimSelection(board, policy)
        if (
            selection.take(victim)
            and make_room_under_limits(selection, arrangement)
            and find_room(board, policy.gang, arrangement, Horizon.LEAVING)
        ):
            yield selection
        board.rewind(start)


def _message(policy: PreemptionPolicy, outcome: Outcome) -> str:
    stopped = len({victim.gang.name for victim in outcome.evicted if victim.whole})
    scaled_down = sum(len(victim.pods) for victim in outcome.evicted if not victim.whole)
    return f"{policy.kind}: {stopped} stopped, {scaled_down} scaled down, {len(outcome.moved)} pods moved"
