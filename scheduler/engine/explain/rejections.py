"""Compact record of rejections, expanded on first access. Each pending group's reasons are stored once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heapreplace, merge
from itertools import chain, islice
from typing import TypeAlias, overload

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import find_pending_groups, first_pending_gang
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import QueueAccount, QueueKey
from scheduler.engine.board.order import GangKey, gang_sort_key
from scheduler.engine.board.run_ends import known_end_times
from scheduler.engine.explain.pending import MISSING_CAPACITY, PendingReasons
from scheduler.engine.explain.reasons import BlockerFormatter, is_schedulable
from scheduler.engine.explain.several_pools import preferred_rejections
from scheduler.engine.explain.shortage import explain_shortage
from scheduler.engine.plan import Blocker, Numbers, Reason, Rejection

Reasons = Mapping[Reason, Numbers]
Position: TypeAlias = tuple[str, int | None, tuple[Blocker, ...]]  # workload, queue position and blockers
Entry: TypeAlias = "tuple[ReportedGroup, Gang]"
# Sort key and submission time of the queue's next entry, then the queue's creation time and unique name.
HeapEntry: TypeAlias = "tuple[QueueKey, int, int, str, QueueAccount, Entry, Iterator[Entry]]"


class ReportedGroup(PendingGroup):
    """A pending group with its reasons at the end of the cycle, unaffected by later changes to the board."""

    __slots__ = ("count", "queue_keys")

    def __init__(
        self, group: PendingGroup, requested: tuple[int, int, int], reasons: dict[Reason, Numbers], count: int
    ) -> None:
        super().__init__(group.kind, group.account, group.choice)
        self.count = count  # number of gangs that are still pending
        self.gangs, self.reasons, group.shared = group.gangs, reasons, True
        self.queue_keys: dict[QueueAccount, QueueKey] = {
            account: account.sort_key_for(group.account, requested) for account in group.account.path
        }


@dataclass(frozen=True, slots=True)
class PoolRejections:
    pool: str
    groups: Sequence[ReportedGroup]
    # Reasons for individual workloads, in addition to those for their groups.
    own_reasons: Mapping[str, Reasons]
    ungrouped: Sequence[Gang]  # gangs that have reasons but no group
    served: AbstractSet[str]
    reserved: AbstractSet[str]  # workloads with reservations and no running pods, which are no longer queued
    # Expected start of the workload for which nodes are held, if known.
    expected_starts: Mapping[str, int]

    def expand(self) -> Iterator[Rejection]:
        """Yield rejections in queue order, then the rejections of gangs that are not queued."""
        keys = {group: _format_queue_keys(group) for group in self.groups}
        for group, gang, position, blockers in self._gangs_with_positions():
            yield self._build_rejection(gang, blockers, position, () if group is None else keys[group])

    def positions(self) -> Iterator[Position]:
        """Yield each rejection's workload, queue position and blockers, in the same order as `expand`."""
        for _, gang, position, blockers in self._gangs_with_positions():
            yield gang.name, position, blockers

    def _gangs_with_positions(
        self,
    ) -> Iterator[tuple[ReportedGroup | None, Gang, int | None, tuple[Blocker, ...]]]:
        position, formatter = 0, BlockerFormatter()
        own_reasons = self.own_reasons
        shared = {group: formatter.blockers(group.reasons) for group in self.groups}
        for group, gang in _gangs_in_queue_order(self.groups, self.served):
            blockers = shared[group]
            if gang.name in own_reasons:
                blockers = formatter.blockers({**group.reasons, **own_reasons[gang.name]})
            if blockers:
                is_queued = self._is_queued(gang, blockers)
                position += is_queued
                yield group, gang, position if is_queued else None, blockers
        for gang in self.ungrouped:
            blockers = formatter.blockers(own_reasons[gang.name])
            is_queued = self._is_queued(gang, blockers)
            position += is_queued
            yield None, gang, position if is_queued else None, blockers

    def names(self) -> Iterator[str]:
        """Yield the names of rejected workloads in no particular order, much faster than `expand`."""
        for group in self.groups:
            for gang in group.gangs:
                if gang.name not in self.served and (group.reasons or gang.name in self.own_reasons):
                    yield gang.name
        for gang in self.ungrouped:
            yield gang.name

    def __len__(self) -> int:
        explained = sum(group.count for group in self.groups if group.reasons)
        others = (gang for group in self.groups if not group.reasons for gang in group.gangs)
        own = sum(gang.name in self.own_reasons and gang.name not in self.served for gang in others)
        return explained + own + len(self.ungrouped)

    def _is_queued(self, gang: Gang, blockers: tuple[Blocker, ...]) -> bool:
        return gang.name not in self.reserved and is_schedulable(blockers)

    def _build_rejection(
        self, gang: Gang, blockers: tuple[Blocker, ...], position: int | None, key: tuple[str, ...]
    ) -> Rejection:
        workload = gang.workload
        key += (f"priority {workload.priority}", f"submitted {_format_utc(workload.submitted)}", gang.name)
        start = self.expected_starts.get(gang.name)
        return Rejection(gang.name, blockers, position, key, start, self.pool)


def _gangs_in_queue_order(groups: Iterable[ReportedGroup], served: AbstractSet[str]) -> Iterator[Entry]:
    """Yield the pending gangs in the order of `PendingOrder`, on a board that no longer changes."""
    by_project: dict[QueueAccount, list[ReportedGroup]] = {}
    for group in groups:
        by_project.setdefault(group.account, []).append(group)
    members: dict[QueueAccount | None, list[tuple[QueueAccount, Iterator[Entry]]]] = {}
    for account, own in by_project.items():
        members.setdefault(account.parent, []).append((account, _project_queue_order(own, served)))
    while set(members) - {None}:
        deepest = max((a for a in members if a is not None), key=lambda account: len(account.path))
        members.setdefault(deepest.parent, []).append((deepest, _merge_queues(members.pop(deepest))))
    return _merge_queues(members.get(None, []))


def _project_queue_order(groups: Iterable[ReportedGroup], served: AbstractSet[str]) -> Iterator[Entry]:
    return ((group, gang) for _, gang, group in merge(*(_pending_gangs(group, served) for group in groups)))


def _pending_gangs(
    group: ReportedGroup, served: AbstractSet[str]
) -> Iterator[tuple[GangKey, Gang, ReportedGroup]]:
    return ((gang_sort_key(gang), gang, group) for gang in group.gangs if gang.name not in served)


def _merge_queues(queues: Iterable[tuple[QueueAccount, Iterator[Entry]]]) -> Iterator[Entry]:
    """Merge the entries of sibling queues, comparing only the next entry of each queue."""
    heap = [_heap_entry(account, entry, rest) for account, rest in queues if (entry := next(rest, None))]
    heapify(heap)
    while heap:
        *_, account, entry, rest = heap[0]
        yield entry
        following = next(rest, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, _heap_entry(account, following, rest))


def _heap_entry(account: QueueAccount, entry: Entry, rest: Iterator[Entry]) -> HeapEntry:
    group, gang = entry
    key, submitted = group.queue_keys[account], gang.workload.submitted
    return key, submitted, account.created, account.name, account, entry, rest


def collect_rejections(board: Board) -> PoolRejections:
    """Return a pool's rejections, with at least one reason for every pending gang."""
    for group in find_pending_groups(board):
        if not group.reasons:
            gang = _first_pending_gang(board, group)
            board.add_reason(gang, *explain_shortage(board, gang))
    pending = PendingReasons(board)
    started = Counter(
        started_gang.group.kind
        for name in board.served
        if (started_gang := board.gangs.get(name)) is not None and started_gang.group is not None
    )
    groups = [
        _reported_group(board, group, pending, len(group.gangs) - started[group.kind])
        for group in board.pending_groups.values()
    ]
    expected_starts = _expected_starts(board)
    ungrouped = [
        board.gangs[name] for name in sorted(board.cycle.rejections) if board.gangs[name].group is None
    ]
    return PoolRejections(
        board.pool.name,
        [group for group in groups if group is not None],
        {**board.cycle.rejections, **_hold_reasons(board, groups)},
        [gang for gang in ungrouped if gang.name not in board.served],
        frozenset(board.served),
        frozenset(name for name in board.cycle.reserved_only if _still_has_reservations(board, name)),
        expected_starts,
    )


def _still_has_reservations(board: Board, name: str) -> bool:
    """Return whether the workload still has its reservations, which another workload may have taken over."""
    gang = board.gangs.get(name)
    return gang is not None and gang.has_pods


def _hold_reasons(board: Board, groups: Iterable[ReportedGroup | None]) -> dict[str, Reasons]:
    hold = board.cycle.backfill_hold
    group = None if hold is None or hold.name in board.served else board.gangs[hold.name].group
    reported = next((r for r in groups if group is not None and r is not None and r.kind == group.kind), None)
    if hold is None or reported is None:
        return {}
    reasons = {**reported.reasons, **board.cycle.rejections.get(hold.name, {})}
    for reason in reasons.keys() & MISSING_CAPACITY:
        reasons[reason] = {**reasons[reason], "held_nodes": len(hold.nodes)}
    return {hold.name: reasons}


def _expected_starts(board: Board) -> dict[str, int]:
    if board.cycle.find_hold is not None and next(known_end_times(board, declared_only=False), None) is None:
        return {}  # no start can be predicted if no workload has a known end
    hold = board.cycle.held_nodes()
    return {} if hold is None or hold.until is None or hold.until <= board.now else {hold.name: hold.until}


def _first_pending_gang(board: Board, group: PendingGroup) -> Gang:
    gang = first_pending_gang(board, group)
    assert gang is not None
    return gang


def _reported_group(
    board: Board, group: PendingGroup, pending: PendingReasons, count: int
) -> ReportedGroup | None:
    """Return the group with its reasons, or None if none of its gangs is pending."""
    if not count:
        return None
    gang = next(gang for gang in group.gangs if gang.name not in board.served)
    reasons = pending.reasons_for(group, gang) if group.reasons else {}
    return ReportedGroup(group, gang.requested, reasons, count)


def _format_queue_keys(group: ReportedGroup) -> tuple[str, ...]:
    return tuple(
        sentence
        for account in reversed(group.account.path)
        for sentence in group.queue_keys[account].describe(account.name)
    )


@lru_cache(maxsize=4096)  # workloads in a burst are often submitted within the same second
def _format_utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


def _renumber_positions(rejections: Iterable[Rejection]) -> Iterator[Rejection]:
    """Renumber each pool's queue positions without gaps."""
    positions: dict[str, int] = {}
    for rejection in rejections:
        if rejection.position is None:
            yield rejection
            continue
        position = positions[rejection.pool] = positions.get(rejection.pool, 0) + 1
        yield rejection if position == rejection.position else replace(rejection, position=position)


class Rejections(Sequence[Rejection]):
    """One rejection per workload, chosen by `preferred_rejections` if several pools reject it."""

    def __init__(self, pools: Sequence[PoolRejections]) -> None:
        self._pools = pools
        self._ready: list[Rejection] = []
        self._left = self._expand_all()

    def expand(self, count: int) -> bool:
        """Expand up to `count` more rejections in advance. Return whether there may be more."""
        before = len(self._ready)
        try:
            self._ready += islice(self._left, count)
        except Exception:
            self._ready, self._left = [], self._expand_all()  # a generator that raised an error cannot resume
            raise
        return len(self._ready) - before == count

    def positions(self) -> Iterator[Position]:
        """Yield the workload, queue position and blockers of each rejection, in order."""
        if len(self._pools) == 1 and "_expanded_rejections" not in vars(self):
            return self._pools[0].positions()
        return (
            (rejection.workload, rejection.position, rejection.blockers)
            for rejection in self._expanded_rejections
        )

    def _expand_all(self) -> Iterator[Rejection]:
        return chain.from_iterable(pool.expand() for pool in self._pools)

    @cached_property
    def in_all_pools(self) -> tuple[Rejection, ...]:
        """All rejections, including several of one workload."""
        rejections = (*self._ready, *self._left)
        self._ready = []
        return rejections

    def choose(self, pools: Mapping[str, str]) -> tuple[Rejection, ...]:
        """Return one rejection per workload, from the workload's pool in `pools` if it has one."""
        return tuple(_renumber_positions(preferred_rejections(self.in_all_pools, pools).values()))

    @cached_property
    def _expanded_rejections(self) -> tuple[Rejection, ...]:
        return self.in_all_pools if len(self._pools) == 1 else self.choose({})

    @overload
    def __getitem__(self, at: int) -> Rejection: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Rejection]: ...
    def __getitem__(self, at: int | slice) -> Rejection | Sequence[Rejection]:
        return self._expanded_rejections[at]

    def __iter__(self) -> Iterator[Rejection]:
        return iter(self._expanded_rejections)

    def __len__(self) -> int:
        if len(self._pools) == 1:
            return len(self._pools[0])
        return len({name for pool in self._pools for name in pool.names()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._expanded_rejections == tuple(other)

    def __hash__(self) -> int:
        return hash(self._expanded_rejections)

    def __repr__(self) -> str:
        return repr(self._expanded_rejections)
