"""Record refusals compactly, and expand them when they are read.

A long line asks for few things and waits for few reasons: what peers were told is held once for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import overload

from berth.core.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import beyond_due, pending, speaker
from scheduler.engine.board.gang import Gang, Peers, ways
from scheduler.engine.board.ledger import Account, Turn
from scheduler.engine.board.order import Order
from scheduler.engine.explain.reasons import BlockerFormatter, dominance, is_schedulable, nearest
from scheduler.engine.explain.shortage import capacity_short_of, why_no_room
from scheduler.engine.plan import Blocker, Numbers, Reason, Refusal

Found = Mapping[Reason, Numbers]
_ABOUT_EVICTIONS = (Reason.NO_RECLAIMABLE_RESOURCES, Reason.VICTIMS_PROTECTED)


class Told(Peers):
    """What peers were told, as the cycle left it. Nothing in it changes when the board does."""

    __slots__ = ("turns",)

    def __init__(self, peers: Peers, asked: tuple[int, int, int], found: dict[Reason, Numbers]) -> None:
        super().__init__(peers.kind, peers.account, peers.choice)
        self.gangs, self.found, peers.shared = peers.gangs, found, True
        self.turns: dict[Account, Turn] = {account: account.turn(asked) for account in peers.account.path}


@dataclass(frozen=True, slots=True)
class PoolRefusals:
    """All who wait in one pool."""

    pool: str
    line: Sequence[Told]
    alone: Mapping[str, Found]  # what was said to one and not to its peers
    apart: Sequence[Gang]  # who waits, but not in line
    served: AbstractSet[str]
    kept: tuple[str, int] | None  # whom nodes are kept for, and until when

    def written(self) -> Iterator[Refusal]:
        """Who is next in front, then those who do not stand in line."""
        position, formatter = 0, BlockerFormatter()
        blockers = {told: formatter.blockers(told.found) for told in self.line}
        keys = {told: _key(told) for told in self.line}
        for told, gang in _Roll(self.line, self.served):
            alone = self.alone.get(gang.name)
            if alone or told.found:
                said = formatter.blockers({**told.found, **alone}) if alone else blockers[told]
                position += is_schedulable(said)
                yield self._refusal(gang, said, position, keys[told])
        for gang in self.apart:
            said = formatter.blockers(self.alone[gang.name])
            position += is_schedulable(said)
            yield self._refusal(gang, said, position, ())

    def _refusal(self, gang: Gang, said: tuple[Blocker, ...], last: int, key: tuple[str, ...]) -> Refusal:
        position = last if is_schedulable(said) else None
        workload = gang.workload
        key += (f"priority {workload.priority}", f"submitted {_utc(workload.submitted)}", gang.name)
        start = self.kept[1] if self.kept is not None and self.kept[0] == gang.name else None
        return Refusal(gang.name, said, position, key, start, self.pool)


class _Roll(Order[Told]):
    """A line in which nothing happens any more."""

    def __init__(self, line: Sequence[Told], served: AbstractSet[str]) -> None:
        self._served = served
        self._left = {told: iter(told.gangs) for told in line}
        super().__init__(line)

    def next_of(self, peers: Told) -> Gang | None:
        return next((gang for gang in self._left[peers] if gang.name not in self._served), None)

    def turn(self, account: Account, peers: Told, gang: Gang) -> Turn:
        del gang
        return peers.turns[account]


def take_down(board: Board) -> PoolRefusals:
    """Everybody who waits gets a reason; what is said holds for the board as it stands."""
    for peers in pending(board):
        if not peers.found:
            gang = _head(board, peers)
            board.refuse(gang, *why_no_room(board, gang))
    lined = [told for peers in board.waiting.values() if (told := _told(board, peers)) is not None]
    apart = [board.gangs[name] for name in sorted(board.refusals) if board.gangs[name].peers is None]
    return PoolRefusals(
        board.pool.name,
        lined,
        dict(board.refusals),
        [gang for gang in apart if gang.name not in board.served],
        frozenset(board.served),
        None if board.kept is None else (board.kept.name, board.kept.until),
    )


def _head(board: Board, peers: Peers) -> Gang:
    gang = speaker(board, peers)
    assert gang is not None
    return gang


def _told(board: Board, peers: Peers) -> Told | None:
    """None: none of them waits any more, or they are stopped."""
    gang = next((gang for gang in peers.gangs if gang.name not in board.served), None)
    if gang is None:
        return None
    found = dict(peers.found)
    if gang.stands and not gang.is_whole:
        missing = sum(want.count for want in next(ways(gang)))
        found.setdefault(Reason.WAITING_FOR_GANG, {"missing": missing})
    _name_what_binds(board, gang, found)
    beyond = beyond_due(gang, gang.asked) if found else None
    if beyond is not None:
        found.setdefault(*beyond)
    return Told(peers, gang.asked, found)


def _name_what_binds(board: Board, gang: Gang, found: dict[Reason, Numbers]) -> None:
    """Of several resources that are short, the one that no eviction could free is the one to report."""
    capacity = found.get(Reason.WAITING_FOR_CAPACITY)
    evictions = [found[reason] for reason in _ABOUT_EVICTIONS if found.get(reason)]
    if capacity is None or not evictions:
        return
    taking = max(evictions, key=nearest)
    if not taking.get("missing"):
        return
    resource = taking["resource"]
    if resource != capacity["resource"] and capacity["resource"] in RESOURCES:
        found[Reason.WAITING_FOR_CAPACITY] = capacity_short_of(board, gang, str(resource)) or capacity


def _key(told: Told) -> tuple[str, ...]:
    return tuple(
        line
        for account in reversed(told.account.path)
        for line in told.turns[account].sentences(account.name)
    )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Refusals(Sequence[Refusal]):
    """Of who waits in several pools, the refusal of the one with the least against it."""

    def __init__(self, pools: Sequence[PoolRefusals]) -> None:
        self._pools = pools

    @cached_property
    def _written(self) -> tuple[Refusal, ...]:
        refusals = [refusal for pool in self._pools for refusal in pool.written()]
        if len(self._pools) == 1:
            return tuple(refusals)
        best: dict[str, Refusal] = {}
        for refusal in sorted(refusals, key=lambda r: -dominance(r.blockers[0].reason)):
            best.setdefault(refusal.workload, refusal)
        return tuple(refusal for refusal in refusals if best[refusal.workload] is refusal)

    @overload
    def __getitem__(self, at: int) -> Refusal: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Refusal]: ...
    def __getitem__(self, at: int | slice) -> Refusal | Sequence[Refusal]:
        return self._written[at]

    def __len__(self) -> int:
        return len(self._written)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._written == tuple(other)

    def __hash__(self) -> int:
        return hash(self._written)

    def __repr__(self) -> str:
        return repr(self._written)
