"""Sort orders of pending workloads.

Ties are broken by name. Digits at the end of a name are compared as a number, so that array tasks are sorted
by index.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import first_pending_gang
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import QueueAccount, QueueKey

# Priority, submission time and name. A number at the end of the name is a separate element.
GangKey: TypeAlias = tuple[int, int, str, int, str]


def gang_sort_key(gang: Gang) -> GangKey:
    key = gang.sort_key
    if key is None:
        stem, number = _split_name(gang.name)
        key = gang.sort_key = (-gang.workload.priority, gang.workload.submitted, stem, number, gang.name)
    return key


def _split_name(name: str) -> tuple[str, int]:
    """Split a name into its stem and the number after its last hyphen.

    If the name does not end in a hyphen and a number, return the whole name and -1.
    """
    stem, hyphen, number = name.rpartition("-")
    return (stem, int(number)) if hyphen and number.isascii() and number.isdigit() else (name, -1)


Head: TypeAlias = tuple[GangKey, Gang, PendingGroup]


class PendingOrder:
    """Iterator over pending gangs in queue order.

    Changes to the board during the iteration affect the order.
    """

    def __init__(self, board: Board, groups: Iterable[PendingGroup]) -> None:
        self._gangs = gangs = _NextGangLookup(board)
        by_project: dict[QueueAccount, list[Head]] = {}
        for group in groups:
            gang = gangs.next_gang(group)
            if gang is not None:
                by_project.setdefault(group.account, []).append((gang_sort_key(gang), gang, group))
        members: dict[QueueAccount | None, list[_Queue]] = {}
        for account, heads in by_project.items():
            members.setdefault(account.parent, []).append(_ProjectHeap(gangs, account, heads))
        self._top = _QueueHeap(None, self._combine_levels(members))

    def skip_group(self, group: PendingGroup) -> None:
        """Skip the group's remaining gangs."""
        self._gangs.skipped.add(group)

    def __iter__(self) -> Iterator[tuple[PendingGroup, Gang]]:
        while self._top.heap:
            _, gang, group = self._top.head()
            yield group, gang
            self._top.pop()

    def _combine_levels(self, members: "dict[QueueAccount | None, list[_Queue]]") -> "list[_Queue]":
        """Combine sibling queues into heaps, deepest level first. Return the top-level queues."""
        while set(members) - {None}:
            deepest = max((a for a in members if a is not None), key=lambda account: len(account.path))
            members.setdefault(deepest.parent, []).append(_QueueHeap(deepest, members.pop(deepest)))
        return members.get(None, [])


class _NextGangLookup:
    """Lookup of each group's next gang, separate from `PendingOrder` to avoid a reference cycle."""

    __slots__ = ("board", "skipped")

    def __init__(self, board: Board) -> None:
        self.board = board
        self.skipped: set[PendingGroup] = set()

    def next_gang(self, group: PendingGroup) -> Gang | None:
        return None if group in self.skipped else first_pending_gang(self.board, group)


class _ProjectHeap:
    """Heap of one project's groups, ordered by each group's first gang."""

    __slots__ = ("account", "gangs", "heap")

    def __init__(self, gangs: _NextGangLookup, account: QueueAccount, heap: list[Head]) -> None:
        self.gangs, self.account, self.heap = gangs, account, heap
        heapify(self.heap)

    def head(self) -> Head:
        return self.heap[0]

    def pop(self) -> bool:
        """Replace the first gang with the next one of its group. Return False if the heap is then empty."""
        group = self.heap[0][2]
        gang = self.gangs.next_gang(group)
        if gang is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (gang_sort_key(gang), gang, group))
        return bool(self.heap)


class _QueueHeap:
    """Heap of sibling queues, ordered by each queue's next gang."""

    __slots__ = ("account", "heap")

    def __init__(self, account: QueueAccount | None, members: "list[_Queue]") -> None:
        self.account = account
        self.heap = [_heap_entry(member) for member in members]
        heapify(self.heap)

    def head(self) -> Head:
        return self.heap[0][4].head()

    def pop(self) -> bool:
        """Remove the first gang, and sort its queue again. Return False if the heap is then empty."""
        member = self.heap[0][4]
        if member.pop():
            heapreplace(self.heap, _heap_entry(member))
        else:
            heappop(self.heap)
        return bool(self.heap)


def _heap_entry(member: "_Queue") -> "tuple[QueueKey, int, int, str, _Queue]":
    account, (_, gang, _) = member.account, member.head()
    assert account is not None
    sort_key = account.sort_key_for(gang.account, gang.requested)
    return sort_key, gang.workload.submitted, account.created, account.name, member


_Queue = _ProjectHeap | _QueueHeap
