"""Here we look after those who were taken off the board once the newcomer has its place: who may stay after
all, who can stand elsewhere, who is lost; and write the outcome down without detours."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.engine.board import Board, Move
from scheduler.engine.gang import Gang, Part
from scheduler.engine.ledger import KINDS
from scheduler.engine.lumps import Held, Lump
from scheduler.engine.model import Pod
from scheduler.engine.nodes import Spot
from scheduler.engine.placement import may_use_kept, open_to
from scheduler.engine.spots import Horizon, pick
from scheduler.engine.taking import Taker


@dataclass(slots=True)
class Outcome:
    """Who gives way for the newcomer, and who only moves."""

    lost: list[Lump] = field(default_factory=list)
    moved: list[tuple[Gang, Part, Pod, Spot]] = field(default_factory=list)
    kept: int = 0  # lumps that turned out not to be needed

    def stops_somebody(self, board: Board) -> bool:
        """Whether there is anybody to wait for: who was only going to start is gone at once."""
        return not all(board.is_fresh(pod) for lump in self.lost for _, pod in lump.pods)

    def moves(self, lump: Lump) -> list[Held]:
        return [(part, pod) for gang, part, pod, _ in self.moved if gang is lump.gang]


def resettle(taker: Taker, start: int, max_moves: int | None = None) -> Outcome | None:
    """Everything taken is off the board, the newcomer is on it. None: the outcome is not acceptable."""
    board, law = taker.board, taker.law
    newcomer = [move for move in board.moves(start) if move.placed]
    outcome = Outcome()
    hopeless: set[object] = set()
    stopped: set[Gang] = set()
    # The dearest first: what is found to be unneeded stays where it is.
    for lump in reversed(taker.taken):
        mark = board.mark()
        # Growth does not outlive its gang: the core, taken last, has been looked at before.
        moved = None if lump.gang in stopped else _restore(taker, lump, hopeless)
        if moved is None or not (law.moves_only or _is_whole_with(lump)):
            board.rewind(mark)
            outcome.lost.append(lump)
            if lump.whole:
                stopped.add(lump.gang)
        else:
            outcome.moved.extend(moved)
    moves = sum(not board.is_fresh(pod) for _, _, pod, _ in outcome.moved)
    if law.moves_only and (outcome.lost or (max_moves is not None and moves > max_moves)):
        return None
    sides = {law.parting(lump.gang.account) for lump in outcome.lost}
    if not law.holds({side for side in sides if side is not None}):
        return None
    outcome.lost.reverse()
    board.rewind(start)
    _play(board, outcome, newcomer)
    return outcome


def _is_whole_with(lump: Lump) -> bool:
    """Growth does not outlive what it grew from: the rest of an optional group may have gone."""
    part = lump.pods[0][0]
    return lump.whole or lump.group or part.count > part.role.min


def _restore(taker: Taker, lump: Lump, hopeless: set[object]) -> list[tuple[Gang, Part, Pod, Spot]] | None:
    """Put a lump back where it was, or elsewhere; the pods that had to move. None: it cannot be had."""
    board, gang = taker.board, lump.gang
    moved = []
    for part, pod in lump.pods:
        spot = _old_place(board, part, pod)
        if spot is None:
            kind = (part.request, part.mask, board.is_fresh(pod), may_use_kept(board, gang))
            spot = None if kind in hopeless else _elsewhere(board, gang, part, pod)
            if spot is None:
                if part.on is None and gang.simple:
                    hopeless.add(kind)
                return None
            moved.append((gang, part, pod, spot))
        board.put(gang, part, pod.index, spot)
    if not _under_caps(taker):
        return None
    return moved


def _old_place(board: Board, part: Part, pod: Pod) -> Spot | None:
    nodes, i = board.nodes, board.nodes.index[pod.node]
    request, apart = part.request, part.role.spread_per_node
    if part.on is not None and apart is not None and part.on.get(i, 0) >= apart:
        return None
    if (
        nodes.cpu[i] >= request.limit_cpu
        and nodes.memory[i] >= request.limit_memory_mib
        and nodes.pods[i] >= 1
        and all(nodes.devices[i][device] >= pod.milli for device in pod.devices)
    ):
        return Spot(i, pod.devices, pod.milli)
    return None


def _elsewhere(board: Board, gang: Gang, part: Part, pod: Pod) -> Spot | None:
    within = None if gang.simple else board.topology.home(gang, part, board.nodes.index[pod.node])
    # What was only going to start must still be able to start at once.
    horizon = Horizon.NOW if board.is_fresh(pod) else Horizon.LEAVING
    return pick(board, part, horizon, open_to(board, gang, within))


def _under_caps(taker: Taker) -> bool:
    asked = taker.law.asked
    return all(
        account.allocated[kind] <= taker.law.ceiling(account)[kind]
        for account in taker.law.gang.account.path
        for kind in KINDS
        if asked[kind]
    )


def _play(board: Board, outcome: Outcome, newcomer: Sequence[Move]) -> None:
    for lump in outcome.lost:
        for part, pod in lump.pods:
            board.drop(lump.gang, part, pod)
    for gang, part, pod, _ in outcome.moved:
        board.drop(gang, part, pod)
    for move in newcomer:
        pod = move.pod
        board.put(move.gang, move.part, pod.index, Spot(move.node, pod.devices, pod.milli))
    for gang, part, pod, spot in outcome.moved:
        board.put(gang, part, pod.index, spot)
