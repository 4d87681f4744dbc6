"""Here we say who goes next. Every order is total: ties end in a name."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from scheduler.engine.gang import Gang
from scheduler.engine.ledger import Account, within

Asked = tuple[int, int, int]


class Turn(NamedTuple):
    """Where a queue stands with its next workload; the smallest goes next."""

    over_quota: bool
    rank: int  # negated: higher first
    over_share: bool
    dominant_share: float  # counting the workload
    dominant_share_now: float
    submitted: int
    created: int
    name: str

    def sentences(self) -> tuple[str, ...]:
        return (
            f"{self.name}: " + ("beyond its quota" if self.over_quota else "within its quota"),
            f"rank {-self.rank}",
            "beyond its fair share" if self.over_share else "within its fair share",
            f"dominant share {self.dominant_share:.3f} with it, {self.dominant_share_now:.3f} without",
        )


def turn(account: Account, gang: Gang, asked: Asked) -> Turn:
    return Turn(
        not within(account.allocated, account.quota, asked),
        -account.rank,
        not within(account.allocated, account.entitled, asked),
        account.saturation(asked),
        account.saturation(asked, plus=False),
        gang.workload.submitted,
        account.created,
        account.name,
    )


def in_project(gang: Gang) -> tuple[int, int, str]:
    """The order inside a project."""
    return -gang.workload.priority, gang.workload.submitted, gang.name


class _Project:
    """The pending line of one project, last first, so that the next is popped from the end."""

    __slots__ = ("account", "asked", "line")

    def __init__(self, account: Account, line: list[tuple[Gang, Asked]]) -> None:
        self.account, self.line = account, line

    def turn(self) -> Turn:
        return turn(self.account, *self.line[-1])

    def head(self) -> tuple[Gang, Asked]:
        return self.line[-1]

    def pop(self) -> bool:
        self.line.pop()
        return bool(self.line)


class _Level:
    """The queues below one parent, as a heap by turn."""

    __slots__ = ("account", "heap")

    def __init__(self, account: Account | None, members: "list[_Project | _Level]") -> None:
        self.account = account
        self.heap = [(member.turn(), member) for member in members]
        heapify(self.heap)

    def turn(self) -> Turn:
        assert self.account is not None
        return turn(self.account, *self.head())

    def head(self) -> tuple[Gang, Asked]:
        return self.heap[0][1].head()

    def pop(self) -> bool:
        """Take the head out and put its queue back where it now belongs."""
        member = self.heap[0][1]
        if member.pop():
            heapreplace(self.heap, (member.turn(), member))
        else:
            heappop(self.heap)
        return bool(self.heap)


class Line:
    """Everybody who waits, each handed out once. What happens to one changes who comes after."""

    def __init__(self, gangs: Iterable[Gang]) -> None:
        by_project: dict[Account, list[tuple[Gang, Asked]]] = {}
        for gang in gangs:
            by_project.setdefault(gang.account, []).append((gang, gang.asked))
        members: dict[Account | None, list[_Project | _Level]] = {}
        for account, line in by_project.items():
            line.sort(key=lambda entry: in_project(entry[0]), reverse=True)
            members.setdefault(account.parent, []).append(_Project(account, line))
        self._top = _Level(None, _gather(members))

    def __iter__(self) -> Iterator[tuple[Gang, Asked, tuple[Turn, ...]]]:
        while self._top.heap:
            gang, asked = self._top.head()
            yield gang, asked, self._key()
            self._top.pop()

    def _key(self) -> tuple[Turn, ...]:
        keys = []
        level: _Project | _Level = self._top
        while isinstance(level, _Level):
            turn_, level = level.heap[0]
            keys.append(turn_)
        return tuple(keys)


def _gather(members: "dict[Account | None, list[_Project | _Level]]") -> "list[_Project | _Level]":
    """Fold lines into levels, the deepest first, until only the top is left."""
    while set(members) - {None}:
        deepest = max((a for a in members if a is not None), key=lambda account: len(account.path))
        level = _Level(deepest, members.pop(deepest))
        members.setdefault(deepest.parent, []).append(level)
    return members.get(None, [])
