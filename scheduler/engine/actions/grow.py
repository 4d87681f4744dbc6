"""Grow elastic gangs one replica at a time, least fulfilled first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import over_bounds
from scheduler.engine.board.gang import (
    Arrangement,
    BoardGroup,
    BoardRole,
    Gang,
    ReplicaRequest,
    alive,
    amounts_of,
    arrangements_of,
    most_now,
    scopes_above,
)
from scheduler.engine.board.ledger import within
from scheduler.engine.placement.find_room import find_room, may_use_held_nodes
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind

MOST_GROWN = 500  # growth steps of one workload in a cycle


class Step(NamedTuple):
    """The next growth step of one gang, ordered by fulfilment, size, submission and name."""

    fulfilment: float
    amounts: tuple[int, int, int]
    submitted: int
    name: str
    role: str
    gang: Gang
    arrangement: Arrangement

    @property
    def order(self) -> tuple[float, tuple[int, int, int], int, str, str]:
        return self.fulfilment, self.amounts, self.submitted, self.name, self.role


def grow(board: Board, choice: int) -> None:
    """Grow gangs up to the deserved amounts of their queues first, then into free capacity."""
    grown = Counter[str]()
    for deserved_only in (True, False):
        queue = GrowthQueue(elastic(board, choice))
        hopeless: set[object] = set()
        while (step := queue.next()) is not None:
            part = step.arrangement[0].part
            kind = part.request, part.mask, may_use_held_nodes(board, step.gang)
            if kind in hopeless or grown[step.name] >= MOST_GROWN or not may_grow(step, deserved_only):
                continue
            if _grown(board, step):
                grown[step.name] += 1
                queue.look_again(step.gang)
            elif len(step.arrangement) == 1 and not step.arrangement[0].scopes and part.on is None:
                hopeless.add(kind)


class GrowthQueue:
    """Possible growth steps in order. After each step, the steps of that gang are recomputed."""

    def __init__(self, gangs: Sequence[Gang]) -> None:
        self._now = {gang.name: {step.role: step for step in steps(gang)} for gang in gangs}
        self._heap = [step.order for of_gang in self._now.values() for step in of_gang.values()]
        heapify(self._heap)

    def next(self) -> Step | None:
        while self._heap:
            order = heappop(self._heap)
            step = self._now[order[3]].get(order[4])
            if step is not None and step.order == order:
                return step
        return None

    def look_again(self, gang: Gang) -> None:
        before = self._now[gang.name]
        self._now[gang.name] = now = {step.role: step for step in steps(gang)}
        for role, step in now.items():
            if role not in before or before[role].order != step.order:
                heappush(self._heap, step.order)


def elastic(board: Board, choice: int) -> list[Gang]:
    """Return complete elastic gangs, except those that this cycle scaled down."""
    return [
        gang
        for gang in board.elastic
        if gang.choice == choice
        and gang.stands
        and gang.is_whole
        and gang.name not in board.cycle.reserved_only
        and gang.name not in board.cycle.evicted
        and gang.name not in board.cycle.scaled_down
    ]


def may_grow(step: Step, deserved_only: bool) -> bool:
    requested = amounts_of(step.arrangement)
    if over_bounds(step.gang, requested) is not None:
        return False
    return not deserved_only or all(
        within(account.allocated, account.deserved, requested) for account in step.gang.account.path
    )


def _grown(board: Board, step: Step) -> bool:
    with board.trial(step.gang, otherwise=None) as trial:
        for horizon in (Horizon.NOW, Horizon.LEAVING):
            if horizon is Horizon.LEAVING and not board.nodes.leaving:
                continue
            if find_room(board, step.gang, step.arrangement, horizon):
                trial.accept(Kind.GROW)
                break
    return trial.kind is not None


def steps(gang: Gang) -> Iterator[Step]:
    workload = gang.workload
    for part in gang.parts:
        arrangement = _one_more(gang, part)
        if arrangement:
            yield Step(
                part.fulfilment(),
                part.amounts,
                workload.submitted,
                gang.name,
                part.role.name,
                gang,
                arrangement,
            )
    if not gang.simple:
        for number, (section, child) in enumerate(_optional(gang.root)):
            arrangement = next(arrangements_of(gang, child), ())
            if arrangement:
                whole = sum(c.is_whole for c in section.children) - section.need
                score = max(0.0, whole / (len(section.children) - section.need))
                yield Step(
                    score,
                    amounts_of(arrangement),
                    workload.submitted,
                    gang.name,
                    f"#{number}",
                    gang,
                    arrangement,
                )


def _one_more(gang: Gang, part: BoardRole) -> Arrangement:
    """Return one more replica of the role, with the replicas of roles that scale with it."""
    role = part.role
    if not part.is_whole or not (part.live or role.min == 0) or not alive(gang.root):
        return ()
    if role.scale_with is not None:
        behind = most_now(gang, part) - part.count
        return (ReplicaRequest(part, behind, scopes_above(gang, part)),) if behind > 0 else ()
    if part.count >= role.max or next(part.free_indices(), None) is None:
        return ()
    needs = [ReplicaRequest(part, 1, scopes_above(gang, part))]
    for tied in gang.parts:
        if tied.role.scale_with is not None and tied.role.scale_with.role == role.name:
            more = most_now(gang, tied, 1) - tied.count
            if more > 0:
                needs.append(ReplicaRequest(tied, more, scopes_above(gang, tied)))
    return tuple(needs)


def _optional(section: BoardGroup) -> Iterator[tuple[BoardGroup, "BoardGroup | BoardRole"]]:
    """Yield each optional child that is not running, with its running group."""
    if not section.is_whole:
        return
    for child in section.children:
        if not child.is_whole and len(section.children) > section.need:
            yield section, child
        elif isinstance(child, BoardGroup):
            yield from _optional(child)
