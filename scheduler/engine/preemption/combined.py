"""Make room for a preemptor by evicting victims and, if the pool allows it, moving other pods."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement
from scheduler.engine.board.ledger import QueueAccount, main_resource
from scheduler.engine.placement.find_room import place_arrangement
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.preemption.outcome import EvictionOutcome, resolve_outcome
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.policies.pending import Consolidate
from scheduler.engine.preemption.proposals import ProposalBudget, fits_under_limits, propose_victims
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.sets import select_all, sufficient_victim_sets

MAX_PRICED_VICTIMS = 10_000  # maximum number of victims priced, summed over all sets
# Maximum number of sets tried on small boards. Larger boards try fewer, because a try may move all pods.
MAX_TRIED_SETS = 48
MIN_TRIED_SETS = 2
MAX_PODS = 4000  # maximum number of pods, summed over all sets that are tried
MAX_PROPOSALS = 24  # maximum number of move proposals per victim set


def evict_and_move(
    policy: PreemptionPolicy, arrangement: Arrangement, *, keeps_quotas: bool
) -> tuple[VictimSelection, EvictionOutcome] | None:
    """Place the arrangement by evicting workloads and, if the pool allows it, moving others.

    Return the evictions and moves, or None if no solution was found. With `keeps_quotas`, no queue is reduced
    below its quota.
    """
    board = policy.board
    consolidation = board.pool.consolidation
    if policy.moves_only or not _could_fit_after_evictions(board, arrangement):
        return None
    may_move = consolidation.enabled and consolidation.max_moves != 0
    start, pods = board.log_position(), sum(map(len, board.on_node))
    tries = max(MIN_TRIED_SETS, min(MAX_TRIED_SETS, MAX_PODS // max(1, pods)))
    for below_quota, victims in sufficient_victim_sets(
        policy, arrangement, MAX_PRICED_VICTIMS, may_move=may_move
    ):
        if tries <= 0 or (keeps_quotas and below_quota):
            break
        selection = VictimSelection(board, policy)
        if select_all(selection, victims) and fits_under_limits(selection, arrangement):
            tries -= 1
            outcome = (
                _place_by_moves(selection, arrangement)
                if may_move
                else _place_after_evictions(selection, start, arrangement)
            )
            if outcome is not None:
                return selection, outcome
        board.rewind(start)
    return None


def _could_fit_after_evictions(board: Board, arrangement: Arrangement) -> bool:
    nodes = board.nodes
    for need in arrangement:
        count, gpus = 0, need.part.amounts[0]
        if not gpus or need.part.request.gpu_memory_mib:  # the device fraction of a GPU memory request varies
            continue
        for i, on_node in enumerate(board.on_node):
            if not nodes.ready[i] or (need.part.mask is not None and not need.part.mask[i]):
                continue
            freed = sum(
                move.pod.milli * len(move.pod.devices)
                for move in on_node.values()
                if not move.gang.non_preemptible
            )
            count += (max(0, nodes.gpu[i]) + freed) // gpus
            if count >= need.count:
                break
        if count < need.count:
            return False
    return True


def total_reduction_below_quota(policy: PreemptionPolicy, before: dict[QueueAccount, tuple[int, ...]]) -> int:
    """Return the total amount by which evictions have reduced victim queues below their quotas."""
    kind = main_resource(policy.requested)
    return sum(
        max(0, min(account.quota[kind], allocated[kind]) - account.allocated[kind])
        for account, allocated in before.items()
        if account not in policy.gang.account.path
    )


def _place_after_evictions(
    selection: VictimSelection, start: int, arrangement: Arrangement
) -> EvictionOutcome | None:
    """Place the arrangement without moving other workloads.

    Return the outcome, or None if the arrangement cannot be placed.
    """
    board, gang = selection.board, selection.policy.gang
    if not place_arrangement(board, gang, arrangement, UsableCapacity.LEAVING):
        return None
    return resolve_outcome(selection, start, arrangement)


def _place_by_moves(selection: VictimSelection, arrangement: Arrangement) -> EvictionOutcome | None:
    """Place the arrangement by moving other workloads.

    Return None if the arrangement cannot be placed, or if the outcome would be unfair to the victim queues.
    """
    board, policy = selection.board, selection.policy
    start, moves = board.log_position(), Consolidate(board, policy.gang, policy.requested)
    sides = {policy.diverging_queues(victim.gang.account) for victim in selection.selected}
    for proposal in propose_victims(
        board, moves, arrangement, ProposalBudget(min(MAX_PROPOSALS, moves.max_trials))
    ):
        outcome = resolve_outcome(proposal, start, arrangement, moves.max_moves)
        if outcome is None:
            continue
        if policy.is_fair_outcome({side for side in sides if side is not None}):
            outcome.evicted = list(selection.selected)
            return outcome
        break  # fairness depends only on the victims, so other moves would not help
    board.rewind(start)
    return None
