"""Decide after a placement which victims stay, move or are evicted."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Way
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.board.nodes import Spot
from scheduler.engine.board.steps import Move
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.preemption.restore import Moved, Restorer, put_back, together
from scheduler.engine.preemption.selection import Taker
from scheduler.engine.preemption.victims import Held, Lump, single


@dataclass(slots=True)
class Outcome:
    """Who gives way for the newcomer, and who only moves."""

    lost: list[Lump] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    kept: int = 0  # lumps that turned out not to be needed

    def stops_somebody(self, board: Board) -> bool:
        """Whether there is anybody to wait for: who was only going to start is gone at once."""
        return not all(board.is_fresh(pod) for lump in self.lost for _, pod in lump.pods)

    def moves(self, lump: Lump) -> list[Held]:
        return [(part, pod) for gang, part, pod, _ in self.moved if gang is lump.gang]


def resettle(taker: Taker, start: int, way: Way, max_moves: int | None = None) -> Outcome | None:
    """Everything taken is off the board, the newcomer is on it. None: the outcome is not acceptable."""
    board, law = taker.board, taker.law
    newcomer = [move for move in board.moves(start) if move.placed]
    outcome = Outcome()
    restorer = Restorer(taker)
    stopped: set[Gang] = set()
    # The dearest first: what is found to be unneeded stays where it is.
    for gang, pods, lumps in together(taker):
        mark = board.mark()
        # Growth does not outlive its gang: the core, taken last, has been looked at before.
        moved = None if gang in stopped else restorer.restore(gang, pods)
        if moved is None or not (law.moves_only or _is_whole_with(lumps[0])) or not _under_caps(taker):
            board.rewind(mark)
            outcome.lost += lumps
            if any(lump.whole for lump in lumps):
                stopped.add(gang)
        else:
            outcome.moved.extend(moved)
    _spare_moves(taker, outcome)
    moves = sum(not board.is_fresh(pod) for _, _, pod, _ in outcome.moved)
    if law.moves_only and (outcome.lost or (max_moves is not None and moves > max_moves)):
        return None
    sides = {law.parting(lump.gang.account) for lump in outcome.lost}
    if not law.holds({side for side in sides if side is not None}):
        return None
    outcome.lost.reverse()
    board.rewind(start)
    if not (outcome.lost and outcome.moved and _needs_no_moves(taker, outcome, way)):
        _play(board, outcome, newcomer)
    return outcome


def _spare_moves(taker: Taker, outcome: Outcome) -> None:
    """Who would move although another replica of its role goes: that one stays instead, and it goes."""
    board = taker.board
    for at, lump in enumerate(outcome.lost):
        ((part, pod), *tied) = lump.pods
        if lump.whole or lump.group or tied:
            continue
        for entry in outcome.moved:
            other, away = entry[1:3]
            if other is not part:
                continue
            mark = board.mark()
            board.drop(lump.gang, part, part.live[away.index])
            if put_back(board, lump.gang, part, pod):
                outcome.moved.remove(entry)
                outcome.lost[at] = single(board, lump.gang, part, away)
                taker.rules[id(outcome.lost[at])] = taker.rules[id(lump)]
                break
            board.rewind(mark)


def _needs_no_moves(taker: Taker, outcome: Outcome, way: Way) -> bool:
    """Whether the newcomer has room where those stood who are lost anyway; then it stands there."""
    board, start = taker.board, taker.board.mark()
    _drop_lost(board, outcome)
    if find_room(board, taker.law.gang, way, Horizon.LEAVING):
        outcome.moved = []
        return True
    board.rewind(start)
    return False


def _is_whole_with(lump: Lump) -> bool:
    """Growth does not outlive what it grew from: the rest of an optional group may have gone."""
    part = lump.pods[0][0]
    return lump.whole or lump.group or part.count > part.role.min


def _under_caps(taker: Taker) -> bool:
    asked = taker.law.asked
    return all(
        account.allocated[kind] <= taker.law.ceiling(account)[kind]
        for account in taker.law.gang.account.path
        for kind in KINDS
        if asked[kind]
    )


def _play(board: Board, outcome: Outcome, newcomer: Sequence[Move]) -> None:
    _drop_lost(board, outcome)
    for gang, part, pod, _ in outcome.moved:
        board.drop(gang, part, pod)
    for move in newcomer:
        pod = move.pod
        board.put(move.gang, move.part, pod.index, Spot(move.node, pod.devices, pod.milli))
    for gang, part, pod, spot in outcome.moved:
        board.put(gang, part, pod.index, spot)


def _drop_lost(board: Board, outcome: Outcome) -> None:
    for lump in outcome.lost:
        for part, pod in lump.pods:
            board.drop(lump.gang, part, pod)
