"""Count the growth of elastic gangs that booting or additional nodes would hold."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from scheduler.engine.actions.grow import GrowthQueue, Step, may_grow
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang, ReplicaRequest
from scheduler.engine.board.ledger import Ledger
from scheduler.engine.board.matching import node_constraints
from scheduler.engine.placement.find_room import place
from scheduler.engine.placement.spots import Horizon

MOST_REPLICAS = 256  # counted per pool and cycle; the rest follows once these run


class Unplaced(NamedTuple):
    """Replicas of a role that no node of the board holds."""

    gang: Gang
    part: BoardRole
    replicas: int


def could_grow(board: Board) -> list[Gang]:
    """Return the complete elastic gangs for whose growth the pool may add nodes.

    Gangs bound to one topology domain are left out, because an added node may be in another domain. So are
    gangs with completed replicas, because their work is coming to an end.
    """
    return [
        gang
        for gang in board.elastic
        if gang.workload.growth_orders_nodes
        and gang.runs
        and gang.simple
        and gang.is_whole
        and gang.name not in board.cycle.reserved_only
        and gang.name not in board.cycle.evicted
        and not any(part.done for part in gang.parts)
    ]


def most_growth(gangs: Sequence[Gang]) -> int:
    """Return the number of replicas by which the gangs could grow, at most `MOST_REPLICAS`."""
    lacking = sum(part.role.max - part.count for gang in gangs for part in gang.parts)
    return min(MOST_REPLICAS, max(0, lacking))


def grow_on_paper(
    board: Board, fresh: Board, gangs: Sequence[Gang], ahead: Sequence[Unplaced]
) -> list[Unplaced]:
    """Return the growth that booting nodes of `board` or the nodes of `fresh` hold, least fulfilled first.

    `ahead` are pending replicas that are already on `fresh` and count towards limits. The caller rewinds the
    boards.
    """
    with _counted() as count:
        for pending in ahead:
            count(pending)
        queue, hopeless, result = GrowthQueue(gangs), set[object](), list[Unplaced]()
        left = MOST_REPLICAS
        while left > 0 and (step := queue.next()) is not None:
            kind = tuple((need.part.request, node_constraints(need.part.role)) for need in step.arrangement)
            if kind in hopeless or not may_grow(step, deserved_only=False):
                continue
            placed = _place(board, fresh, step)
            if placed is None:
                if all(need.part.on is None for need in step.arrangement):
                    hopeless.add(kind)
                continue
            for grown in placed.on_fresh:
                grown.part.done += grown.replicas  # counts as running until the growth is undone
                count(grown)
            left -= sum(need.count for need in step.arrangement)
            result += [*placed.on_booting, *placed.on_fresh]
            queue.look_again(step.gang)
        for gang in gangs:
            for part in gang.parts:
                part.done = 0
    return result


class _Placed(NamedTuple):
    on_booting: list[Unplaced]
    on_fresh: list[Unplaced]


def _place(board: Board, fresh: Board, step: Step) -> _Placed | None:
    """Place one growth step. If a replica fits nowhere, return None and leave both boards unchanged."""
    gang, placed = step.gang, _Placed([], [])
    before, before_fresh = board.mark(), fresh.mark()
    twin = fresh.gangs.get(gang.name) or fresh.add(gang.workload, 0, ())
    for need in step.arrangement:
        part = need.part
        for _ in range(need.count):
            mark = board.mark()
            if place(board, gang, ReplicaRequest(part, 1), Horizon.BOOTING, None):
                if board.nodes.booting[board.moves(mark)[0].node]:
                    placed.on_booting.append(Unplaced(gang, part, 1))
            elif place(fresh, twin, ReplicaRequest(twin.part(part.role.name), 1), Horizon.NOW, None):
                placed.on_fresh.append(Unplaced(gang, part, 1))
            else:
                board.rewind(before)
                fresh.rewind(before_fresh)
                return None
    return placed


@contextmanager
def _counted() -> Iterator[Callable[[Unplaced], None]]:
    """Charge replicas to their queues and undo the charges at the end."""
    charged: list[Unplaced] = []

    def charge(unplaced: Unplaced, sign: int) -> None:
        gpu, cpu, memory = (sign * unplaced.replicas * amount for amount in unplaced.part.amounts)
        Ledger.charge(unplaced.gang.account, gpu, cpu, memory, unplaced.gang.non_preemptible)

    def count(unplaced: Unplaced) -> None:
        charge(unplaced, 1)
        charged.append(unplaced)

    try:
        yield count
    finally:
        for unplaced in charged:
            charge(unplaced, -1)
