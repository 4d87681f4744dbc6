"""Order of pending workloads; every order is total.

Every order is total: ties end in a name."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Generic, TypeVar

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import speaker
from scheduler.engine.board.gang import Gang, Peers
from scheduler.engine.board.ledger import Account, Turn


def in_project(gang: Gang) -> tuple[int, int, str]:
    """The order inside a project."""
    return -gang.workload.priority, gang.workload.submitted, gang.name


P = TypeVar("P", bound=Peers)
Head = tuple[tuple[int, int, str], Gang, P]


class Order(Generic[P]):
    """Everybody who waits, each handed out once."""

    def __init__(self, waiting: Iterable[P]) -> None:
        by_project: dict[Account, list[Head[P]]] = {}
        for peers in waiting:
            gang = self.next_of(peers)
            if gang is not None:
                by_project.setdefault(peers.account, []).append((in_project(gang), gang, peers))
        members: dict[Account | None, list[_Queue[P]]] = {}
        for account, heads in by_project.items():
            members.setdefault(account.parent, []).append(_Project(self, account, heads))
        self._top = _Level(self, None, self._gather(members))

    def next_of(self, peers: P) -> Gang | None:
        """The first of them who is still to be handed out."""
        raise NotImplementedError

    def turn(self, account: Account, peers: P, gang: Gang) -> Turn:
        """Where a queue stands with this gang, which is next in it."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[P, Gang]]:
        while self._top.heap:
            _, gang, peers = self._top.head()
            yield peers, gang
            self._top.pop()

    def _gather(self, members: "dict[Account | None, list[_Queue[P]]]") -> "list[_Queue[P]]":
        """Fold lines into levels, the deepest first, until only the top is left."""
        while set(members) - {None}:
            deepest = max((a for a in members if a is not None), key=lambda account: len(account.path))
            level = _Level(self, deepest, members.pop(deepest))
            members.setdefault(deepest.parent, []).append(level)
        return members.get(None, [])


class Line(Order[Peers]):
    """The order as the board stands. What happens to one changes who comes after."""

    def __init__(self, board: Board, waiting: Iterable[Peers]) -> None:
        self._board = board
        self._left: set[Peers] = set()
        super().__init__(waiting)

    def leave(self, peers: Peers) -> None:
        """What was said to the one handed out was said to all of its peers."""
        self._left.add(peers)

    def next_of(self, peers: Peers) -> Gang | None:
        return None if peers in self._left else speaker(self._board, peers)

    def turn(self, account: Account, peers: Peers, gang: Gang) -> Turn:
        del peers
        return account.turn(gang.asked)


class _Project(Generic[P]):
    """Who speaks for whom in one project, as a heap by their own order."""

    __slots__ = ("account", "heap", "line")

    def __init__(self, line: Order[P], account: Account, heap: list[Head[P]]) -> None:
        self.line, self.account, self.heap = line, account, heap
        heapify(self.heap)

    def head(self) -> Head[P]:
        return self.heap[0]

    def pop(self) -> bool:
        peers = self.heap[0][2]
        gang = self.line.next_of(peers)
        if gang is None:
            heappop(self.heap)
        else:
            heapreplace(self.heap, (in_project(gang), gang, peers))
        return bool(self.heap)


class _Level(Generic[P]):
    """The queues below one parent, as a heap by turn."""

    __slots__ = ("account", "heap", "line")

    def __init__(self, line: Order[P], account: Account | None, members: "list[_Queue[P]]") -> None:
        self.line, self.account = line, account
        self.heap = [self._placed(member) for member in members]
        heapify(self.heap)

    def _placed(self, member: "_Queue[P]") -> "tuple[Turn, int, int, str, _Queue[P]]":
        account, (_, gang, peers) = member.account, member.head()
        assert account is not None
        turn = self.line.turn(account, peers, gang)
        return turn, gang.workload.submitted, account.created, account.name, member

    def head(self) -> Head[P]:
        return self.heap[0][4].head()

    def pop(self) -> bool:
        """Take the head out and put its queue back where it now belongs."""
        member = self.heap[0][4]
        if member.pop():
            heapreplace(self.heap, self._placed(member))
        else:
            heappop(self.heap)
        return bool(self.heap)


_Queue = _Project[P] | _Level[P]
