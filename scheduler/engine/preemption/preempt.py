"""Evict victims to make room for one preemptor."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from berth.core.wording.words import format_count
from scheduler.engine.actions.backfill import gangs_in_hold_order
from scheduler.engine.board.board import Board, Trial
from scheduler.engine.board.eligible import exceeded_bound, find_pending_groups, first_pending_gang
from scheduler.engine.board.gang import Arrangement, Gang, PendingGroup, arrangements, total_request
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.board.steps import Move
from scheduler.engine.plan import UNSCHEDULABLE_REASONS, Kind, Numbers, Reason
from scheduler.engine.preemption.audit import AllocatedByQueue, eviction_records
from scheduler.engine.preemption.bounds import reclaim_numbers, shortfall
from scheduler.engine.preemption.combined import evict_and_move, total_reduction_below_quota
from scheduler.engine.preemption.obstacles import Obstacle, eviction_obstacle, policy_obstacle
from scheduler.engine.preemption.outcome import EvictionOutcome, reapply_moves, resolve_outcome
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.policies.pending import Consolidate, Preempt, Reclaim
from scheduler.engine.preemption.policies.scaling import ScaleDown
from scheduler.engine.preemption.proposals import ProposalBudget, propose_victims
from scheduler.engine.preemption.victims.selection import VictimSelection

# Alternative policies, tried if evictions would leave a queue below its quota.
ALTERNATIVES: Mapping[type[PreemptionPolicy], Sequence[type[PreemptionPolicy]]] = {
    ScaleDown: (Consolidate, Reclaim, Preempt),
    Reclaim: (Preempt,),
}
# Maximum number of proposals per preemptor and policy. A time limit would not be deterministic.
MAX_PROPOSALS = 24

Result = tuple[VictimSelection, EvictionOutcome]


class AcceptedEvictions(NamedTuple):
    """Evictions and moves that make room for the preemptor, with the queues' allocations before them."""

    selection: VictimSelection
    outcome: EvictionOutcome
    before: AllocatedByQueue
    over_bounds_before: bool


def preempt_for_pending_gangs(board: Board, choice: int, policy_type: type[PreemptionPolicy]) -> None:
    """Try a policy for all pending gangs in queue order. No gang is placed twice in a cycle."""
    tried: set[str] = set()
    candidates = {
        group
        for group in find_pending_groups(board, choice)
        if not UNSCHEDULABLE_REASONS & group.reasons.keys()
    }
    served = not _reject_all_if_policy_cannot_help(board, candidates, policy_type)
    while served:
        served = False
        order = PendingOrder(board, candidates)
        # The result stays the same until a gang is placed.
        first_in_hold_order = cache(lambda: next(gangs_in_hold_order(board, board.cycle.overdue), None))
        for group, gang in order:
            order.skip_group(group)
            # A gang that was evicted again must wait, so that two gangs cannot displace each other.
            if gang.name in tried:
                candidates.remove(group)
                continue
            tried.add(gang.name)
            served = _try_policy(board, gang, policy_type, first_in_hold_order)
            if not served or first_pending_gang(board, group) is gang:
                candidates.remove(group)
            if served:
                break


def _reject_all_if_policy_cannot_help(
    board: Board, candidates: Iterable[PendingGroup], policy_type: type[PreemptionPolicy]
) -> bool:
    """If the policy can help none of the candidates, reject them all without a trial.

    Return whether they were rejected.
    """
    rejections: list[tuple[Gang, Reason | None, Numbers]] = []
    rejects_gangs_over_share, unreported = policy_type.rejects_gangs_over_share(board), policy_type.unreported
    for group in candidates:
        gang = group.gangs[group.at]  # this gang is still pending, because nothing has changed
        obstacle = policy_obstacle(board, gang, policy_type, rejects_gangs_over_share)
        if obstacle is None:
            return False
        reason, numbers = obstacle
        rejections.append((gang, reason if numbers and reason not in unreported else None, numbers))
    board.reject_all(rejections)
    return True


def _try_policy(
    board: Board,
    gang: Gang,
    policy_type: type[PreemptionPolicy],
    first_in_hold_order: Callable[[], Gang | None],
) -> bool:
    """Try the policy for one gang. Return whether the gang was placed or fits without evictions."""
    cycle = board.cycle
    hold, find_hold = cycle.backfill_hold, cycle.find_hold
    # Nodes are held for the gang, or would be held for it next.
    is_holder = (
        hold is not None and hold.name == gang.name if find_hold is None else first_in_hold_order() is gang
    )
    if is_holder:
        # Victims may move to the nodes that are held for the gang.
        cycle.backfill_hold = cycle.find_hold = None
    with board.trial(gang, default_reason=None) as trial:
        policy = policy_type(board, gang, gang.requested)
        rejection = _try_arrangements(trial, policy, arrangements(gang))
        if rejection is not None and rejection[1] and rejection[0] not in policy_type.unreported:
            trial.reject(*rejection)
    if is_holder and trial.kind is None:
        cycle.backfill_hold, cycle.find_hold = hold, find_hold
    return rejection is None


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
    """Accept the first arrangement that can be placed, and return None.

    If no arrangement can be placed, return the first obstacle.
    """
    board, gang = trial.board, trial.gang
    result: Obstacle | None = None
    below_quota: tuple[AcceptedEvictions, list[Move]] | None = None
    for arrangement in choices:
        requested = total_request(arrangement)
        policy = policy if requested == policy.requested else type(policy)(board, gang, requested)
        short = eviction_obstacle(board, policy) or shortfall(VictimSelection(board, policy), arrangement)
        if short is not None:
            result = result or short
            continue
        before, over_bounds_before = _allocated_by_queue(board), exceeded_bound(gang, requested) is not None
        budget = ProposalBudget(min(MAX_PROPOSALS, policy.max_trials))
        best = _find_outcome(trial, policy, arrangement, budget, before)
        if best is not None:
            selection, outcome = best
            if not outcome.evicted and not outcome.moved:
                board.rewind(trial.start)
                return None  # the gang fits without evictions, so `allocate` places it
            acceptance = AcceptedEvictions(selection, outcome, before, over_bounds_before)
            if not total_reduction_below_quota(policy, before):
                _accept_trial(trial, acceptance)
                return None
            below_quota = below_quota or (acceptance, board.moves_since(trial.start))
        board.rewind(trial.start)
        result = result or _rejection_after_attempts(board, policy, budget)
    if below_quota is None:
        return result
    acceptance, moves = below_quota
    reapply_moves(board, moves)
    _accept_trial(trial, acceptance)
    return None


def _accept_trial(trial: Trial, acceptance: AcceptedEvictions) -> None:
    selection, outcome, before, over_bounds_before = acceptance
    trial.delayed = over_bounds_before and outcome.stops_running_pods(trial.board)
    records, kind = eviction_records(selection, outcome, before), selection.policy.kind
    trial.accept(kind if records else Kind.START, _bundle_message(kind, outcome), records)


def _find_outcome(
    trial: Trial,
    policy: PreemptionPolicy,
    arrangement: Arrangement,
    budget: ProposalBudget,
    before: AllocatedByQueue,
) -> Result | None:
    """Apply the best evictions and moves to the board and return them, or return None if no solution was
    found.
    """
    board, start = trial.board, trial.start
    best = _find_outcome_by_policy(trial, policy, arrangement, budget, before)
    if best is None or not total_reduction_below_quota(policy, before):
        return best
    moves = board.moves_since(start)
    for other_type in ALTERNATIVES.get(type(policy), ()):
        board.rewind(start)
        if other_type is Consolidate and not board.pool.consolidation.enabled:
            continue
        other = other_type(board, trial.gang, policy.requested)
        if eviction_obstacle(board, other) or shortfall(VictimSelection(board, other), arrangement):
            continue
        budget = ProposalBudget(min(MAX_PROPOSALS, other.max_trials))
        result = _find_outcome_by_policy(trial, other, arrangement, budget, before)
        if result is not None and not total_reduction_below_quota(other, before):
            return result
    board.rewind(start)
    reapply_moves(board, moves)
    return best


def _find_outcome_by_policy(
    trial: Trial,
    policy: PreemptionPolicy,
    arrangement: Arrangement,
    budget: ProposalBudget,
    before: AllocatedByQueue,
) -> Result | None:
    board, best = trial.board, None
    for selection in _propose_with_retries(board, policy, arrangement, budget):
        outcome = resolve_outcome(selection, trial.start, arrangement, policy.max_moves)
        if outcome is not None:
            best = selection, outcome
            break
    if best is not None and not total_reduction_below_quota(policy, before):
        return best
    moves = board.moves_since(trial.start) if best else []
    board.rewind(trial.start)
    policy.allow_exceeding_share_again()
    combined = evict_and_move(policy, arrangement, keeps_quotas=best is not None)
    if combined is None and best is not None:
        reapply_moves(board, moves)
    return combined or best


def _rejection_after_attempts(
    board: Board, policy: PreemptionPolicy, budget: ProposalBudget
) -> tuple[Reason, Numbers]:
    reasons = board.pending_reasons(policy.gang)
    short = reasons.get(Reason.FRAGMENTED) or reasons.get(Reason.WAITING_FOR_CAPACITY) or {}
    numbers = reclaim_numbers(VictimSelection(board, policy), short.get("resource"))
    if budget.left <= 0:
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {"attempts": budget.total, **numbers}
    return Reason.NO_RECLAIMABLE_RESOURCES, numbers


def _allocated_by_queue(board: Board) -> AllocatedByQueue:
    return {account: tuple(account.allocated) for account in board.ledger.accounts.values()}


def _propose_with_retries(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: ProposalBudget
) -> Iterator[VictimSelection]:
    yield from propose_victims(board, policy, arrangement, budget)
    if policy.retries_within_share():
        yield from propose_victims(board, policy, arrangement, budget.reset())
    if policy.retries_without_new_gangs():
        yield from propose_victims(board, policy, arrangement, budget.reset())


def _bundle_message(kind: Kind, outcome: EvictionOutcome) -> str:
    stopped = len({victim.gang.name for victim in outcome.evicted if victim.is_gang})
    scaled_down = sum(len(victim.pods) for victim in outcome.evicted if not victim.is_gang)
    parts = [
        f"{format_count(count, noun)} {verb}"
        for count, noun, verb in (
            (stopped, "workload", "stopped"),
            (scaled_down, "pod", "scaled down"),
            (len(outcome.moved), "pod", "moved"),
        )
        if count
    ]
    return f"{kind}: {', '.join(parts)}" if parts else str(kind)
