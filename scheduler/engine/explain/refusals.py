"""Compact record of refusals, expanded on first access.

A long queue has few distinct requests and reasons, so the reasons of each pending group are stored
once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from itertools import chain, islice
from typing import overload

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import find_pending_groups, first_pending
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import QueueAccount, QueueKey
from scheduler.engine.board.order import QueueOrder
from scheduler.engine.board.run_ends import known_ends
from scheduler.engine.explain.pending import MISSING_CAPACITY, PendingReasons
from scheduler.engine.explain.reasons import BlockerFormatter, dominance, is_schedulable
from scheduler.engine.explain.shortage import explain_shortage
from scheduler.engine.plan import Blocker, Numbers, Reason, Refusal

Reasons = Mapping[Reason, Numbers]


class ReportedGroup(PendingGroup):
    """A pending group with its pending reasons at the end of the cycle.

    Later changes to the board do not affect the group.
    """

    __slots__ = ("queue_keys",)

    def __init__(
        self, group: PendingGroup, requested: tuple[int, int, int], reasons: dict[Reason, Numbers]
    ) -> None:
        super().__init__(group.kind, group.account, group.choice)
        self.gangs, self.reasons, group.shared = group.gangs, reasons, True
        self.queue_keys: dict[QueueAccount, QueueKey] = {
            account: account.sort_key_for(group.account, requested) for account in group.account.path
        }


@dataclass(frozen=True, slots=True)
class PoolRefusals:
    pool: str
    groups: Sequence[ReportedGroup]
    own_reasons: Mapping[str, Reasons]  # reasons of workloads, in addition to those of their groups
    ungrouped: Sequence[Gang]  # gangs with reasons but without a group
    served: AbstractSet[str]
    # contains only the workload that nodes are held for, if its start is known
    expected_starts: Mapping[str, int]

    def expand(self) -> Iterator[Refusal]:
        """Yield refusals in queue order, followed by those of gangs that are not queued."""
        position, formatter = 0, BlockerFormatter()
        blockers = {group: formatter.blockers(group.reasons) for group in self.groups}
        keys = {group: _format_queue_keys(group) for group in self.groups}
        for group, gang in _FinalOrder(self.groups, self.served):
            own_reasons = self.own_reasons.get(gang.name)
            if own_reasons or group.reasons:
                gang_blockers = (
                    formatter.blockers({**group.reasons, **own_reasons}) if own_reasons else blockers[group]
                )
                position += is_schedulable(gang_blockers)
                yield self._refusal(gang, gang_blockers, position, keys[group])
        for gang in self.ungrouped:
            gang_blockers = formatter.blockers(self.own_reasons[gang.name])
            position += is_schedulable(gang_blockers)
            yield self._refusal(gang, gang_blockers, position, ())

    def names(self) -> Iterator[str]:
        """Yield the names of the workloads that `expand` yields, much faster but in no particular order."""
        for group in self.groups:
            for gang in group.gangs:
                if gang.name not in self.served and (group.reasons or self.own_reasons.get(gang.name)):
                    yield gang.name
        for gang in self.ungrouped:
            yield gang.name

    def _refusal(
        self, gang: Gang, gang_blockers: tuple[Blocker, ...], last: int, key: tuple[str, ...]
    ) -> Refusal:
        position = last if is_schedulable(gang_blockers) else None
        workload = gang.workload
        key += (f"priority {workload.priority}", f"submitted {_utc(workload.submitted)}", gang.name)
        start = self.expected_starts.get(gang.name)
        return Refusal(gang.name, gang_blockers, position, key, start, self.pool)


class _FinalOrder(QueueOrder[ReportedGroup]):
    """Queue order of a board that no longer changes."""

    def __init__(self, groups: Sequence[ReportedGroup], served: AbstractSet[str]) -> None:
        self._served = served
        self._left = {group: iter(group.gangs) for group in groups}
        super().__init__(groups)

    def next_gang(self, group: ReportedGroup) -> Gang | None:
        return next((gang for gang in self._left[group] if gang.name not in self._served), None)

    def sort_key(self, account: QueueAccount, group: ReportedGroup, gang: Gang) -> QueueKey:
        del gang
        return group.queue_keys[account]


def collect_refusals(board: Board) -> PoolRefusals:
    """Return the refusals of a pool, with at least one reason for every pending gang."""
    for group in find_pending_groups(board):
        if not group.reasons:
            gang = _first_gang(board, group)
            board.add_reason(gang, *explain_shortage(board, gang))
    pending = PendingReasons(board)
    groups = [_reported_group(board, group, pending) for group in board.pending_groups.values()]
    expected_starts = _expected_starts(board)
    ungrouped = [
        board.gangs[name] for name in sorted(board.cycle.refusals) if board.gangs[name].group is None
    ]
    return PoolRefusals(
        board.pool.name,
        [group for group in groups if group is not None],
        {**board.cycle.refusals, **_reasons_with_hold(board, groups)},
        [gang for gang in ungrouped if gang.name not in board.served],
        frozenset(board.served),
        expected_starts,
    )


def _reasons_with_hold(board: Board, groups: Iterable[ReportedGroup | None]) -> dict[str, Reasons]:
    """Return the reasons of the workload that nodes are held for, with the number of held nodes."""
    hold = board.cycle.backfill_hold
    group = None if hold is None or hold.name in board.served else board.gangs[hold.name].group
    reported = next((r for r in groups if group is not None and r is not None and r.kind == group.kind), None)
    if hold is None or reported is None:
        return {}
    reasons = {**reported.reasons, **board.cycle.refusals.get(hold.name, {})}
    for reason in reasons.keys() & MISSING_CAPACITY:
        reasons[reason] = {**reasons[reason], "held_nodes": len(hold.nodes)}
    return {hold.name: reasons}


def _expected_starts(board: Board) -> dict[str, int]:
    if board.cycle.find_hold is not None and next(known_ends(board, declared_only=False), None) is None:
        return {}  # without a known end there is no expected start
    hold = board.cycle.hold()
    return {} if hold is None or hold.until is None or hold.until <= board.now else {hold.name: hold.until}


def _first_gang(board: Board, group: PendingGroup) -> Gang:
    gang = first_pending(board, group)
    assert gang is not None
    return gang


def _reported_group(board: Board, group: PendingGroup, pending: PendingReasons) -> ReportedGroup | None:
    """Return the group with its reasons, or None if none of its gangs is pending."""
    for gang in group.gangs:
        if gang.name not in board.served:
            break
    else:
        return None
    return ReportedGroup(group, gang.requested, pending.reasons_for(group, gang) if group.reasons else {})


def _format_queue_keys(group: ReportedGroup) -> tuple[str, ...]:
    return tuple(
        sentence
        for account in reversed(group.account.path)
        for sentence in group.queue_keys[account].sentences(account.name)
    )


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


class Refusals(Sequence[Refusal]):
    """One refusal per workload: among all pools, the one with the least dominant reason."""

    def __init__(self, pools: Sequence[PoolRefusals]) -> None:
        self._pools = pools
        self._ready: list[Refusal] = []
        self._left = self._expand_all()

    def expand(self, count: int) -> bool:
        """Expand the next refusals, at most `count`. Return whether there may be more."""
        before = len(self._ready)
        try:
            self._ready += islice(self._left, count)
        except Exception:
            self._ready, self._left = [], self._expand_all()  # a generator ends when it raises an error
            raise
        return len(self._ready) - before == count

    def _expand_all(self) -> Iterator[Refusal]:
        return chain.from_iterable(pool.expand() for pool in self._pools)

    @cached_property
    def _expanded(self) -> tuple[Refusal, ...]:
        refusals = [*self._ready, *self._left]
        self._ready = []
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
        return self._expanded[at]

    def __len__(self) -> int:
        """Return the number of refused workloads, without expanding the refusals."""
        return len({name for pool in self._pools for name in pool.names()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._expanded == tuple(other)

    def __hash__(self) -> int:
        return hash(self._expanded)

    def __repr__(self) -> str:
        return repr(self._expanded)
