"""Order of pending workloads. Every order is total: ties are broken by name."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Generic, TypeVar

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import first_pending
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import QueueAccount, QueueKey


def project_sort_key(gang: Gang) -> tuple[int, int, str]:
    """Return the sort key of a gang within its project."""
    return -gang.workload.priority, gang.workload.submitted, gang.name


P = TypeVar("P", bound=PendingGroup)
Head = tuple[tuple[int, int, str], Gang, P]


class QueueOrder(Generic[P]):
    """Iterator over pending gangs in queue order."""

    def __init__(self, groups: Iterable[P]) -> None:
        by_project: dict[QueueAccount, list[Head[P]]] = {}
        for group in groups:
            gang = self.next_gang(group)
            if gang is not None:
                by_project.setdefault(group.account, []).append((project_sort_key(gang), gang, group))
        members: dict[QueueAccount | None, list[_Queue[P]]] = {}
        for account, heads in by_project.items():
            members.setdefault(account.parent, []).append(_Project(self, account, heads))
        self._top = _Level(self, None, self._fold_levels(members))

    def next_gang(self, group: P) -> Gang | None:
        """Return the next gang of the group, or None."""
        raise NotImplementedError

    def sort_key(self, account: QueueAccount, group: P, gang: Gang) -> QueueKey:
        """Return the sort key of a queue with its next gang."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[P, Gang]]:
        while self._top.heap:
            _, gang, group = self._top.head()
            yield group, gang
            self._top.pop()

    def _fold_levels(self, members: "dict[QueueAccount | None, list[_Queue[P]]]") -> "list[_Queue[P]]":
        """Combine the queues of each parent, deepest first, until only the top level is left."""
        while set(members) - {None}:
            deepest = max((a for a in members if a is not None), key=lambda account: len(account.path))
            level = _Level(self, deepest, members.pop(deepest))
            members.setdefault(deepest.parent, []).append(level)
        return members.get(None, [])


class PendingOrder(QueueOrder[PendingGroup]):
    """Queue order on a board that changes during the iteration."""

    def __init__(self, board: Board, groups: Iterable[PendingGroup]) -> None:
        self._board = board
        self._skipped: set[PendingGroup] = set()
        super().__init__(groups)

    def skip(self, group: PendingGroup) -> None:
        """Skip the remaining gangs of the group."""
        self._skipped.add(group)

    def next_gang(self, group: PendingGroup) -> Gang | None:
        return None if group in self._skipped else first_pending(self._board, group)

    def sort_key(self, account: QueueAccount, group: PendingGroup, gang: Gang) -> QueueKey:
        del group
        return account.sort_key_for(gang.account, gang.requested)


class _Project(Generic[P]):
    """Heap of one project's groups, ordered by the first gang of each group."""

    __slots__ = ("account", "heap", "order")

    def __init__(self, order: QueueOrder[P], account: QueueAccount, heap: list[Head[P]]) -> None:
        self.order, self.account, self.heap = order, account, heap
        heapify(self.heap)

    def head(self) -> Head[P]:
        return self.heap[0]

    def pop(self) -> bool:
        group = self.heap[0][2]
        gang = self.order.next_gang(group)
        if gang is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (project_sort_key(gang), gang, group))
        return bool(self.heap)


class _Level(Generic[P]):
    """Heap of the queues below one parent, ordered by their sort keys."""

    __slots__ = ("account", "heap", "order")

    def __init__(
        self, order: QueueOrder[P], account: QueueAccount | None, members: "list[_Queue[P]]"
    ) -> None:
        self.order, self.account = order, account
        self.heap = [self._heap_entry(member) for member in members]
        heapify(self.heap)

    def _heap_entry(self, member: "_Queue[P]") -> "tuple[QueueKey, int, int, str, _Queue[P]]":
        account, (_, gang, group) = member.account, member.head()
        assert account is not None
        sort_key = self.order.sort_key(account, group, gang)
        return sort_key, gang.workload.submitted, account.created, account.name, member

    def head(self) -> Head[P]:
        return self.heap[0][4].head()

    def pop(self) -> bool:
        """Remove the head and reinsert its queue. Return False if nothing is left."""
        member = self.heap[0][4]
        if member.pop():
            heapreplace(self.heap, self._heap_entry(member))
        else:
            heappop(self.heap)
        return bool(self.heap)


_Queue = _Project[P] | _Level[P]
