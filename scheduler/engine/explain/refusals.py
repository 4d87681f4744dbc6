"""Record refusals compactly, and expand them when they are read.

A long queue has few distinct requests and reasons, so the reasons of a pending group are stored once.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import overload

from berth.core.amounts import RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import first_pending, over_deserved, pending
from scheduler.engine.board.gang import Gang, PendingGroup, arrangements
from scheduler.engine.board.ledger import QueueAccount, QueueKey
from scheduler.engine.board.order import QueueOrder
from scheduler.engine.explain.reasons import BlockerFormatter, dominance, is_schedulable, nearest
from scheduler.engine.explain.shortage import capacity_short_of, why_no_room
from scheduler.engine.plan import Blocker, Numbers, Reason, Refusal

Reasons = Mapping[Reason, Numbers]


class ReportedGroup(PendingGroup):
    """A pending group with its reasons at the end of the cycle.

    Later changes to the board do not affect the group.
    """

    __slots__ = ("turns",)

    def __init__(
        self, group: PendingGroup, requested: tuple[int, int, int], reasons: dict[Reason, Numbers]
    ) -> None:
        super().__init__(group.kind, group.account, group.choice)
        self.gangs, self.reasons, group.shared = group.gangs, reasons, True
        self.turns: dict[QueueAccount, QueueKey] = {
            account: account.turn(requested) for account in group.account.path
        }


@dataclass(frozen=True, slots=True)
class PoolRefusals:
    """Refusals of one pool."""

    pool: str
    groups: Sequence[ReportedGroup]
    alone: Mapping[str, Reasons]  # reasons of single workloads, in addition to those of their group
    apart: Sequence[Gang]  # gangs with reasons but without a group
    served: AbstractSet[str]
    hold: tuple[str, int] | None  # the workload that nodes are held for, and until when

    def written(self) -> Iterator[Refusal]:
        """Yield refusals in queue order, then refusals of gangs that are not queued."""
        position, formatter = 0, BlockerFormatter()
        blockers = {group_: formatter.blockers(group_.reasons) for group_ in self.groups}
        keys = {group_: _key(group_) for group_ in self.groups}
        for group_, gang in _Roll(self.groups, self.served):
            alone = self.alone.get(gang.name)
            if alone or group_.reasons:
                blockers_ = formatter.blockers({**group_.reasons, **alone}) if alone else blockers[group_]
                position += is_schedulable(blockers_)
                yield self._refusal(gang, blockers_, position, keys[group_])
        for gang in self.apart:
            blockers_ = formatter.blockers(self.alone[gang.name])
            position += is_schedulable(blockers_)
            yield self._refusal(gang, blockers_, position, ())

    def _refusal(
        self, gang: Gang, blockers_: tuple[Blocker, ...], last: int, key: tuple[str, ...]
    ) -> Refusal:
        position = last if is_schedulable(blockers_) else None
        workload = gang.workload
        key += (f"priority {workload.priority}", f"submitted {_utc(workload.submitted)}", gang.name)
        start = self.hold[1] if self.hold is not None and self.hold[0] == gang.name else None
        return Refusal(gang.name, blockers_, position, key, start, self.pool)


class _Roll(QueueOrder[ReportedGroup]):
    """Queue order of a board that no longer changes."""

    def __init__(self, groups: Sequence[ReportedGroup], served: AbstractSet[str]) -> None:
        self._served = served
        self._left = {group_: iter(group_.gangs) for group_ in groups}
        super().__init__(groups)

    def next_of(self, group: ReportedGroup) -> Gang | None:
        return next((gang for gang in self._left[group] if gang.name not in self._served), None)

    def turn(self, account: QueueAccount, group: ReportedGroup, gang: Gang) -> QueueKey:
        del gang
        return group.turns[account]


def collect_refusals(board: Board) -> PoolRefusals:
    """Return the refusals of a pool. Every pending gang gets a reason."""
    for group in pending(board):
        if not group.reasons:
            gang = _head(board, group)
            board.add_reason(gang, *why_no_room(board, gang))
    groups = [_reported_group(board, group) for group in board.waiting.values()]
    apart = [board.gangs[name] for name in sorted(board.cycle.refusals) if board.gangs[name].group is None]
    return PoolRefusals(
        board.pool.name,
        [group for group in groups if group is not None],
        dict(board.cycle.refusals),
        [gang for gang in apart if gang.name not in board.served],
        frozenset(board.served),
        None
        if board.cycle.backfill_hold is None
        else (board.cycle.backfill_hold.name, board.cycle.backfill_hold.until),
    )


def _head(board: Board, group: PendingGroup) -> Gang:
    gang = first_pending(board, group)
    assert gang is not None
    return gang


def _reported_group(board: Board, group: PendingGroup) -> ReportedGroup | None:
    """Return the group with its reasons, or None if none of its gangs is pending."""
    for gang in group.gangs:
        if gang.name not in board.served:
            break
    else:
        return None
    reasons = dict(group.reasons)
    if gang.stands and not gang.is_whole:
        missing = sum(need.count for need in next(arrangements(gang)))
        reasons.setdefault(Reason.WAITING_FOR_GANG, {"missing": missing})
    _name_what_binds(board, gang, reasons)
    beyond = over_deserved(gang, gang.requested) if reasons else None
    if beyond is not None:
        reasons.setdefault(*beyond)
    return ReportedGroup(group, gang.requested, reasons)


def _name_what_binds(board: Board, gang: Gang, reasons: dict[Reason, Numbers]) -> None:
    """If several resources are short, report the resource that no eviction could free."""
    capacity = reasons.get(Reason.WAITING_FOR_CAPACITY)
    if capacity is None:
        return
    reclaim, protected = reasons.get(Reason.NO_RECLAIMABLE_RESOURCES), reasons.get(Reason.VICTIMS_PROTECTED)
    closest = max(reclaim, protected, key=nearest) if reclaim and protected else reclaim or protected
    if not closest or not closest.get("missing"):
        return
    resource = closest["resource"]
    if resource != capacity["resource"] and capacity["resource"] in RESOURCES:
        reasons[Reason.WAITING_FOR_CAPACITY] = capacity_short_of(board, gang, str(resource)) or capacity


def _key(group_: ReportedGroup) -> tuple[str, ...]:
    return tuple(
        sentence
        for account in reversed(group_.account.path)
        for sentence in group_.turns[account].sentences(account.name)
    )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Refusals(Sequence[Refusal]):
    """One refusal per workload: among several pools, the refusal with the least dominant reason."""

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
