"""Grow elastic gangs one replica at a time, least fulfilled first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import over_bounds
from scheduler.engine.board.gang import (
    Gang,
    Part,
    Section,
    Want,
    Way,
    alive,
    amounts_of,
    most_now,
    scopes_above,
    ways_of,
)
from scheduler.engine.board.ledger import within
from scheduler.engine.placement.find_room import find_room, may_use_kept
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind, Reason

MOST_GROWN = 500  # steps of one workload in a turn; the next cycle goes on


class Step(NamedTuple):
    """The next step of one gang, ordered: the least fulfilled, then the smallest, the earliest, the name."""

    fulfilment: float
    amounts: tuple[int, int, int]
    submitted: int
    name: str
    role: str
    gang: Gang
    way: Way

    @property
    def order(self) -> tuple[float, tuple[int, int, int], int, str, str]:
        return self.fulfilment, self.amounts, self.submitted, self.name, self.role


def grow(board: Board, choice: int) -> None:
    """First as far as queues are entitled, then into what nobody else wants."""
    grown = Counter[str]()
    for entitled_only in (True, False):
        line = GrowthQueue(elastic(board, choice))
        hopeless: set[object] = set()
        while (step := line.next()) is not None:
            part = step.way[0].part
            kind = part.request, part.mask, may_use_kept(board, step.gang)
            if kind in hopeless or grown[step.name] >= MOST_GROWN or not may_grow(step, entitled_only):
                continue
            if _grown(board, step):
                grown[step.name] += 1
                line.look_again(step.gang)
            elif len(step.way) == 1 and not step.way[0].scopes and part.on is None:
                hopeless.add(kind)


class GrowthQueue:
    """Steps that could be taken next, in order; what one step changes in its gang is looked at again."""

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
    """Gangs that stand whole and could be bigger, but for those that were just made smaller."""
    return [
        gang
        for gang in board.elastic
        if gang.choice == choice
        and gang.stands
        and gang.is_whole
        and gang.name not in board.on_paper
        and gang.name not in board.evicted
        and gang.name not in board.shrunk
    ]


def may_grow(step: Step, entitled_only: bool) -> bool:
    asked = amounts_of(step.way)
    if over_bounds(step.gang, asked) is not None:
        return False
    return not entitled_only or all(
        within(account.allocated, account.entitled, asked) for account in step.gang.account.path
    )


def _grown(board: Board, step: Step) -> bool:
    with board.trial(step.gang, otherwise=Reason.WAITING_FOR_CAPACITY) as trial:
        for horizon in (Horizon.NOW, Horizon.LEAVING):
            if horizon is Horizon.LEAVING and not board.nodes.leaving:
                continue
            if find_room(board, step.gang, step.way, horizon):
                trial.keep(Kind.GROW)
                break
        else:
            trial.pass_over()
    return trial.kind is not None


def steps(gang: Gang) -> Iterator[Step]:
    workload = gang.workload
    for part in gang.parts:
        way = _one_more(gang, part)
        if way:
            yield Step(
                part.fulfilment(), part.amounts, workload.submitted, gang.name, part.role.name, gang, way
            )
    if not gang.simple:
        for number, (section, child) in enumerate(_optional(gang.root)):
            way = next(ways_of(gang, child), ())
            if way:
                whole = sum(c.is_whole for c in section.children) - section.need
                score = max(0.0, whole / (len(section.children) - section.need))
                yield Step(score, amounts_of(way), workload.submitted, gang.name, f"#{number}", gang, way)


def _one_more(gang: Gang, part: Part) -> Way:
    """One replica, and what other roles are tied to it by a ratio."""
    role = part.role
    if not part.is_whole or not (part.live or role.min == 0) or not alive(gang.root):
        return ()
    if role.scale_with is not None:
        behind = most_now(gang, part) - part.count
        return (Want(part, behind, scopes_above(gang, part)),) if behind > 0 else ()
    if part.count >= role.max or next(part.free_indices(), None) is None:
        return ()
    wants = [Want(part, 1, scopes_above(gang, part))]
    for tied in gang.parts:
        if tied.role.scale_with is not None and tied.role.scale_with.role == role.name:
            more = most_now(gang, tied, 1) - tied.count
            if more > 0:
                wants.append(Want(tied, more, scopes_above(gang, tied)))
    return tuple(wants)


def _optional(section: Section) -> Iterator[tuple[Section, "Section | Part"]]:
    """Children that do not run and need not, of groups that do."""
    if not section.is_whole:
        return
    for child in section.children:
        if not child.is_whole and len(section.children) > section.need:
            yield section, child
        elif isinstance(child, Section):
            yield from _optional(child)
