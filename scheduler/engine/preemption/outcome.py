"""Decide which victims stay, move or are evicted, once the preemptor has been placed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang
from scheduler.engine.board.ledger import GPU, KINDS
from scheduler.engine.board.nodes import Slot
from scheduler.engine.board.steps import Move
from scheduler.engine.placement.find_room import place_arrangement
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.preemption.restore import Moved, VictimRestorer, group_victims, restore_in_place
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import PlacedPod, Victim, single_pod_victim


@dataclass(slots=True)
class EvictionOutcome:
    """Victims of one preemptor that were evicted or moved."""

    evicted: list[Victim] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)

    def stops_running_pods(self, board: Board) -> bool:
        """Return whether any evicted pod is running. The preemptor then waits until the evicted pods have
        stopped.
        """
        return not all(board.is_newly_placed(pod) for victim in self.evicted for _, pod in victim.pods)

    def exceeds_limits(self) -> bool:
        """Return whether moves to smaller devices put a queue over its limit."""
        grown = {gang.account for gang, _, pod, slot in self.moved if slot.milli > pod.milli}
        return any(
            account.allocated[GPU] > account.limit[GPU] for project in grown for account in project.path
        )

    def moved_pods(self, victim: Victim) -> list[PlacedPod]:
        return [(part, pod) for gang, part, pod, _ in self.moved if gang is victim.gang]


def resolve_outcome(
    selection: VictimSelection, start: int, arrangement: Arrangement, max_moves: int | None = None
) -> EvictionOutcome | None:
    """Restore the victims that can stay or move, so that only the remaining victims are evicted.

    Return the outcome, or None if it is not acceptable.
    """
    board, policy = selection.board, selection.policy
    preemptor_moves = [move for move in board.moves_since(start) if move.placed]
    outcome = EvictionOutcome()
    restorer = VictimRestorer(selection)
    stopped: set[Gang] = set()
    # Restore the costliest victims first, so that they are evicted only if necessary.
    for gang, pods, victims in group_victims(selection):
        mark = board.log_position()
        # Extra replicas cannot stay if their gang stops.
        # The gang's core was selected last, so this loop handles it first.
        moved = None if gang in stopped else restorer.restore(gang, pods)
        if (
            moved is None
            or not (policy.moves_only or _would_meet_minimum(victims[0]))
            or not _is_within_max_allocations(selection)
        ):
            board.rewind(mark)
            outcome.evicted += victims
            if any(victim.is_gang for victim in victims):
                stopped.add(gang)
        else:
            outcome.moved.extend(moved)
    _evict_moved_replicas(selection, outcome)
    if outcome.exceeds_limits():
        return None
    moves = sum(not board.is_newly_placed(pod) for _, _, pod, _ in outcome.moved)
    if policy.moves_only and (outcome.evicted or (max_moves is not None and moves > max_moves)):
        return None
    sides = {policy.diverging_queues(victim.gang.account) for victim in outcome.evicted}
    if not policy.is_fair_outcome({side for side in sides if side is not None}):
        return None
    outcome.evicted.reverse()
    board.rewind(start)
    if not (outcome.evicted and outcome.moved and _place_without_moves(selection, outcome, arrangement)):
        _apply_outcome(board, outcome, preemptor_moves)
    return outcome


def _evict_moved_replicas(selection: VictimSelection, outcome: EvictionOutcome) -> None:
    """Keep an evicted replica in place if a replica of the same role that would be moved can be evicted
    instead.
    """
    board = selection.board
    for at, victim in enumerate(outcome.evicted):
        ((part, pod), *followers) = victim.pods
        if victim.is_gang or victim.is_group or followers:
            continue
        for entry in outcome.moved:
            other, away = entry[1:3]
            if other is not part:
                continue
            mark = board.log_position()
            board.remove_pod(victim.gang, part, part.live[away.index])
            if restore_in_place(board, victim.gang, part, pod):
                outcome.moved.remove(entry)
                outcome.evicted[at] = single_pod_victim(board, victim.gang, part, away)
                selection.rules[id(outcome.evicted[at])] = selection.rules[id(victim)]
                break
            board.rewind(mark)


def _place_without_moves(
    selection: VictimSelection, outcome: EvictionOutcome, arrangement: Arrangement
) -> bool:
    board, start = selection.board, selection.board.log_position()
    _remove_evicted_pods(board, outcome)
    if place_arrangement(board, selection.policy.gang, arrangement, UsableCapacity.LEAVING):
        outcome.moved = []
        return True
    board.rewind(start)
    return False


def _would_meet_minimum(victim: Victim) -> bool:
    """Return whether the gang would meet its minimum if the victim were restored."""
    part = victim.pods[0][0]
    return victim.is_gang or victim.is_group or part.replica_count > part.role.min


def _is_within_max_allocations(selection: VictimSelection) -> bool:
    requested = selection.policy.requested
    return all(
        account.allocated[kind] <= selection.policy.max_allocation(account)[kind]
        for account in selection.policy.gang.account.path
        for kind in KINDS
        if requested[kind]
    )


def _apply_outcome(board: Board, outcome: EvictionOutcome, preemptor_moves: Sequence[Move]) -> None:
    _remove_evicted_pods(board, outcome)
    for gang, part, pod, _ in outcome.moved:
        board.remove_pod(gang, part, pod)
    for move in preemptor_moves:
        pod = move.pod
        board.place_pod(move.gang, move.part, pod.index, Slot(move.node, pod.devices, pod.milli))
    for gang, part, pod, slot in outcome.moved:
        board.place_pod(gang, part, pod.index, slot)


def reapply_moves(board: Board, moves: Sequence[Move]) -> None:
    """Repeat the moves that rewinding the board has undone."""
    for gang, part, pod, node, placed, _ in moves:
        if placed:
            board.place_pod(gang, part, pod.index, Slot(node, pod.devices, pod.milli))
        else:
            board.remove_pod(gang, part, part.live[pod.index])


def _remove_evicted_pods(board: Board, outcome: EvictionOutcome) -> None:
    for victim in outcome.evicted:
        for part, pod in victim.pods:
            board.remove_pod(victim.gang, part, pod)
