"""Take turns where shares cannot be divided as workloads request them.

A queue gives way only when its past stands clearly above the newcomer's: what it used while the other waited
must outweigh the cost of changing. The same holds the other way round: work that stands beyond its queue's
share because it cannot be divided keeps its turn until then.

How clearly depends on what changes hands. A change that swaps all there is soon tells, and must not come too
often; one that makes a small difference is clear after long, and must come at all. So what the past must
differ by is no more than half of where it is heading, as things stand before the change or after it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import speaker
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import Account, first
from scheduler.engine.board.order import in_project
from scheduler.engine.fair_share.usage_history import FLOOR, part, wanting, weights_of

HYSTERESIS = 0.4  # of a queue's due, at most; two equal queues change about three times in a half-life
LEAST = 0.02  # of a queue's due: what is less is the same


@dataclass(frozen=True, slots=True)
class Level:
    """What siblings hold of one resource, of what counts as use, with 1 for what is due to each."""

    charged: Mapping[Account, int]
    worth: Mapping[Account, float]  # of one unit held

    def held(self, account: Account) -> float:
        """Where its past is heading."""
        return self.charged[account] * self.worth[account] if self.charged[account] else 0.0


class Turns:
    """Who owes whom a turn, in the resource the newcomer asks for most of: GPUs, where it asks for any."""

    def __init__(self, board: Board, gang: Gang, asked: tuple[int, int, int]) -> None:
        self._board, self._gang, self.kind = board, gang, first(asked)
        self._asked = asked[self.kind]
        self.counts = bool(gang.account.past)
        # As things stand before anything is taken.
        self._levels = {a: _level(board, a, self.kind) for a in gang.account.path} if self.counts else {}
        self._beyond = {a: self._beyond_quota(a, a, self._asked) for a in self._levels}
        self._lifted = {a for a in gang.account.path if a.may_be_lifted(asked)}
        self.on = self.counts and gang.account in self._lifted and is_head(board, gang)

    def may_owe(self, mine: Account, theirs: Account) -> bool:
        """Whether theirs used more, and nothing has lifted mine, down to the newcomer's project, yet.

        Newcomers are looked at in the order of their past: who comes before could not be helped.
        """
        if not self.on or self._ahead(mine, theirs) <= 0:
            return False
        path = self._gang.account.path
        return all(account in self._lifted for account in path[: path.index(mine) + 1])

    def owes(self, mine: Account, theirs: Account, given: int) -> bool:
        """Whether theirs has had its turn, if it has to give as much."""
        return self._has_had_its_turn(mine, theirs, max(given, self._asked))

    def may_give(self, mine: Account, theirs: Account, given: int) -> bool:
        """Whether theirs, which is above its share, may give as much.

        If it stays at its share or above, and ahead of mine in what it holds, that is so whatever was before.
        """
        if self._beyond_quota(theirs, mine, -given) < self._beyond[mine]:
            return self.owes(mine, theirs, given)
        due = max(theirs.quota[self.kind], theirs.share[self.kind] + theirs.cut[self.kind])
        return theirs.allocated[self.kind] - given >= due or self._ahead(mine, theirs) >= 0

    def _beyond_quota(self, account: Account, mine: Account, more: int) -> float:
        beyond = account.allocated[self.kind] + more - account.quota[self.kind]
        return beyond * self._levels[mine].worth[account] if beyond > 0 else 0.0

    def _has_had_its_turn(self, mine: Account, theirs: Account, changes: int) -> bool:
        """Whether theirs used so much, or mine so little, that changing so many units is worth its cost."""
        (used, mean, all_of_it), less = theirs.past[self.kind], mine.past[self.kind].used
        if used >= all_of_it > less:
            return True  # later there would be no time left for mine
        if used - less <= LEAST:
            return False
        far = self._hysteresis(mine, theirs, changes) / 2
        return used - mean > far or mean - less > far

    def _ahead(self, mine: Account, theirs: Account) -> float:
        return theirs.past[self.kind].used - mine.past[self.kind].used

    def _hysteresis(self, mine: Account, theirs: Account, changes: int) -> float:
        level = self._levels[mine]
        now = level.held(theirs) - level.held(mine)
        given = min(changes, level.charged[theirs])
        then = now - (given * level.worth[theirs] if given else 0.0) - changes * level.worth[mine]
        if now <= 0 or then >= 0:
            return LEAST
        return max(LEAST, min(HYSTERESIS * self._pace(mine), now / 3, -then / 3))

    def _pace(self, account: Account) -> float:
        """Half a turn for whoever's department has turns of its own: else its turn would be one project's."""
        above = (wanting(_siblings(self._board, step), self.kind) for step in account.path[1:])
        return math.prod(0.5 for asking in above if len(asking) > 1)


def _siblings(board: Board, account: Account) -> Sequence[Account]:
    return account.parent.children if account.parent else board.ledger.roots


def _level(board: Board, account: Account, kind: int) -> Level:
    """Of an account and its siblings, until one of them holds more or less."""
    key = "level", kind
    if key not in account.family:
        accounts = _siblings(board, account)
        asking = wanting(accounts, kind)
        whole = account.parent.share[kind] if account.parent else board.nodes.capacity()[kind]
        charged = {a: _charged(board, a, kind) for a in accounts}
        now, weights = max(FLOOR * whole, sum(charged[a] for a in asking)), weights_of(asking, kind)
        account.family[key] = Level(charged, {a: part(1, now, a, kind, weights) for a in accounts})
    found: Level = account.family[key]
    return found


def _charged(board: Board, account: Account, kind: int) -> int:
    held = account.allocated[kind]
    return held if board.pool.fair_share.count_all else max(0, held - account.quota[kind])


def is_head(board: Board, gang: Gang) -> bool:
    """Whether it is the next of its project."""
    heads = (
        speaker(board, peers) for peers in board.lines.get(gang.account, ()) if peers.choice == gang.choice
    )
    return all(head is None or head is gang or in_project(gang) < in_project(head) for head in heads)
