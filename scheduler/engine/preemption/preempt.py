"""Evict victims for one preemptor: bound, propose, simulate, judge."""

from collections.abc import Iterable, Iterator

from scheduler.engine.board.board import Board, Trial
from scheduler.engine.board.eligible import first_pending, over_bounds, pending
from scheduler.engine.board.gang import Arrangement, Gang, PendingGroup, amounts_of, arrangements
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.explain.reasons import NEVER
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind, Numbers, Reason
from scheduler.engine.preemption.audit import evictions
from scheduler.engine.preemption.bounds import shortfall, totals
from scheduler.engine.preemption.obstacles import Obstacle, hopeless, obstacle
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

MOST_PROPOSALS = 24  # per preemptor and policy; counted, so that every machine gives up at the same point


def preempt_for_pending(board: Board, choice: int, policy_type: type[PreemptionPolicy]) -> None:
    """Try a policy for all pending gangs in queue order.

    The first gang of a pending group represents the group; once it is placed, the order is computed again and
    the next gang follows. No gang is placed twice: a gang that loses its new place waits for the next cycle,
    so that two gangs can never take a place from each other in turn.
    """
    done: set[str] = set()
    hopeful = {group for group in pending(board, choice) if not NEVER & group.reasons.keys()}
    served = not _all_refused(board, hopeful, policy_type)
    while served:
        served = False
        order = PendingOrder(board, hopeful)
        for group, gang in order:
            order.leave(group)
            if gang.name in done:
                hopeful.remove(group)
                continue
            done.add(gang.name)
            served = _attempt(board, gang, policy_type)
            if not served or first_pending(board, group) is gang:
                hopeful.remove(group)
            if served:
                break


def _all_refused(board: Board, hopeful: Iterable[PendingGroup], policy_type: type[PreemptionPolicy]) -> bool:
    """Return whether the policy can help no group. If so, refuse all of them without trials.

    While no gang is placed, the board is the same for all groups and their order does not matter.
    """
    refusals: list[tuple[Gang, Reason | None, Numbers]] = []
    needs_share, unreported = policy_type.needs_share(board), policy_type.unreported
    for group in hopeful:
        gang = group.gangs[group.at]  # still pending, because nothing has changed since
        obstacle = hopeless(board, gang, policy_type, needs_share)
        if obstacle is None:
            return False
        reason, numbers = obstacle
        refusals.append((gang, reason if numbers and reason not in unreported else None, numbers))
    board.refuse_all(refusals)
    return True


def _attempt(board: Board, gang: Gang, policy_type: type[PreemptionPolicy]) -> bool:
    """Try a policy for one gang. Return whether the gang was placed, or fits without an eviction."""
    with board.trial(gang, otherwise=None) as trial:
        policy = policy_type(board, gang, gang.requested)
        refusal = _try_arrangements(trial, policy, arrangements(gang))
        if refusal is not None and refusal[1] and refusal[0] not in policy_type.unreported:
            trial.refuse(*refusal)
    return refusal is None


def preempt_for_growth(
    board: Board, gang: Gang, arrangement: Arrangement, policy_type: type[PreemptionPolicy]
) -> bool:
    """Try a policy for one growth step. Return whether the step was placed."""
    policy = policy_type(board, gang, amounts_of(arrangement))
    with board.trial(gang, otherwise=None) as trial:
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
        requested = amounts_of(arrangement)
        policy = policy if requested == policy.requested else type(policy)(board, gang, requested)
        short = obstacle(board, policy) or shortfall(VictimSelection(board, policy))
        if short is not None:
            result = result or short
            continue
        before, over_bounds_before = _held(board), over_bounds(gang, requested) is not None
        budget = _Budget(min(MOST_PROPOSALS, policy.most_trials))
        for selection in _all_proposals(board, policy, arrangement, budget):
            outcome = resolve_outcome(selection, trial.start, arrangement, policy.most_moves)
            if outcome is not None and not outcome.evicted and not outcome.moved:
                board.rewind(trial.start)
                return None  # the gang fits without evictions: left to `allocate`
            if outcome is not None:
                trial.waits = over_bounds_before and outcome.stops_running_pods(board)
                written = evictions(selection, outcome, before)
                trial.accept(policy.kind if written else Kind.START, _message(policy, outcome), written)
                return None
        board.rewind(trial.start)
        result = result or _no_arrangement(board, policy, budget)
    return result


def _no_arrangement(board: Board, policy: PreemptionPolicy, budget: "_Budget") -> tuple[Reason, Numbers]:
    """Return the refusal for a gang whose sums suffice but for which no attempt succeeded."""
    reasons = board.reasons(policy.gang)
    short = reasons.get(Reason.FRAGMENTED) or reasons.get(Reason.WAITING_FOR_CAPACITY) or {}
    numbers = totals(VictimSelection(board, policy), short.get("resource"))
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

    def renewed(self) -> "_Budget":
        self.left = self.total
        return self


def _held(board: Board) -> dict[QueueAccount, tuple[int, ...]]:
    return {account: tuple(account.allocated) for account in board.ledger.accounts.values()}


def _all_proposals(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: _Budget
) -> Iterator[VictimSelection]:
    yield from _proposals(board, policy, arrangement, budget)
    if policy.takes_more_inside():
        yield from _proposals(board, policy, arrangement, budget.renewed())
    if policy.spares_more():
        yield from _proposals(board, policy, arrangement, budget.renewed())


def _proposals(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: _Budget
) -> Iterator[VictimSelection]:
    """Yield victim selections, each applied to the board and rewound before the next."""
    start, banned, offer_cache, free = board.mark(), set[int](), OfferCache(), board.nodes.free()
    if not any(need.scopes for need in arrangement):
        one_may = single_victim_may_suffice(VictimSelection(board, policy), arrangement, free)
        replicas = sum(need.count for need in arrangement)
        while budget.spend() and board.cycle.efforts.may_try(policy.gang, replicas):
            board.attempt()
            selection = VictimSelection(board, policy)
            if not propose_by_node(selection, arrangement, banned, offer_cache):
                board.rewind(start)
                break
            if one_may and not banned and sum(victim.whole for victim in selection.selected) > 1:
                stopped = list(selection.selected)
                board.rewind(start)
                yield from _alone(
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


def _alone(
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
