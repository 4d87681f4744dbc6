"""Here we take lumps off the board for one newcomer, as far as its law allows."""

from collections.abc import Iterable, Iterator

from scheduler.engine.board import Board
from scheduler.engine.gang import Gang
from scheduler.engine.laws import Key, Law
from scheduler.engine.ledger import Account
from scheduler.engine.lumps import Lump, growth, single, whole


class Taker:
    """Knows what may be taken now, and remembers what was."""

    def __init__(self, board: Board, law: Law) -> None:
        self.board, self.law = board, law
        self.taken: list[Lump] = []
        self.rules: dict[int, str] = {}  # by the lump's identity
        self._whole: dict[str, Lump] = {}
        self._looked: dict[str, bool] = {}
        self._safe: dict[str, bool] = {}

    def lumps_on(self, i: int) -> Iterator[Lump]:
        """What could be taken to make room on this node, in no order."""
        gangs = {}
        for move in self.board.on_node[i].values():
            if self.law.moves_only:
                if not self.is_safe(move.gang):
                    yield single(self.board, move.gang, move.part, move.pod)
            else:
                gangs[move.gang.name] = move.gang
        node = self.board.nodes.nodes[i].name
        for gang in gangs.values():
            for lump in self.lumps_of(gang):
                if lump.whole or any(pod.node == node for _, pod in lump.pods):
                    yield lump

    def lumps_of(self, gang: Gang) -> Iterator[Lump]:
        law = self.law
        if not self._may_look_at(gang.account) or not law.may_take_from(gang) or not self._at_hand(gang):
            return
        if law.takes_growth and gang.may_grow:
            yield from growth(self.board, gang)
        if law.takes_gangs and not self.is_safe(gang):
            if gang.name not in self._whole:
                self._whole[gang.name] = whole(self.board, gang)
            yield self._whole[gang.name]

    def everything(self) -> Iterator[Lump]:
        """All that could be taken anywhere."""
        for account, gangs in self.board.by_project.items():
            if self._may_look_at(account):
                for gang in gangs.values():
                    if self.law.moves_only:
                        if not self.is_safe(gang):
                            for part in gang.parts:
                                for pod in part.live.values():
                                    yield single(self.board, gang, part, pod)
                    else:
                        yield from self.lumps_of(gang)

    def nodes_in_reach(self) -> set[int]:
        """Nodes on which something stands that could be taken."""
        index = self.board.nodes.index
        return {
            index[pod.node]
            for account in self.law.projects()
            for gang in self.board.by_project[account].values()
            if self.law.may_take_from(gang)
            for part in gang.parts
            for pod in part.live.values()
        }

    def ordered(self, lumps: Iterable[Lump]) -> list[Lump]:
        """Those the law allows to be taken now, who gives way first in front."""
        allowed = [(self.law.key(lump), lump) for lump in lumps if self.law.rule(lump) is not None]
        allowed.sort(key=_by_key)
        return [lump for _, lump in allowed]

    def take(self, lump: Lump) -> bool:
        """Drop it, if the law still allows that now."""
        rule = self.law.rule(lump)
        if rule is None or not self.still_there(lump):
            return False
        for part, pod in lump.pods:
            self.board.drop(lump.gang, part, pod)
        self._whole.pop(lump.gang.name, None)
        self._looked.clear()
        self.rules[id(lump)] = rule
        self.taken.append(lump)
        return True

    def still_there(self, lump: Lump) -> bool:
        """All of it stands, and growth can still be spared."""
        if any(part.live.get(pod.index) is not pod for part, pod in lump.pods):
            return False
        if lump.whole or self.law.moves_only:
            return True
        part = lump.pods[0][0]
        if len(lump.pods) == 1 and part.count > part.role.min:
            return True
        return any({id(p) for _, p in other.pods} == {id(p) for _, p in lump.pods}
                   for other in growth(self.board, lump.gang))  # fmt: skip

    def forget(self, count: int) -> None:
        """The board was rewound to where so many lumps had been taken."""
        for lump in self.taken[count:]:
            self._whole.pop(lump.gang.name, None)
        self._looked.clear()
        del self.taken[count:]

    def is_safe(self, gang: Gang) -> bool:
        name = gang.name
        if name not in self._safe:
            self._safe[name] = not self._at_hand(gang) or self.law.is_safe(gang)
        return self._safe[name]

    def _at_hand(self, gang: Gang) -> bool:
        """Who was served by moving others in this cycle, or was moved, is left alone until the next."""
        return gang is not self.law.gang and gang.name not in self.board.settled

    def _may_look_at(self, account: Account) -> bool:
        if account.name not in self._looked:
            self._looked[account.name] = self.law.may_look_at(account)
        return self._looked[account.name]


def _by_key(entry: tuple[Key, Lump]) -> Key:
    return entry[0]
