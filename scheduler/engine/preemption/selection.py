"""Remove victims from the board for one preemptor."""

from collections.abc import Iterable, Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import Account
from scheduler.engine.preemption.policy import Key, Law
from scheduler.engine.preemption.victims import Lump, growth, single, whole


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
        on_node = self.board.on_node[i].values()
        if self.law.moves_only:
            for move in on_node:
                if not self.is_safe(move.gang):
                    yield single(self.board, move.gang, move.part, move.pod)
            return
        node = self.board.nodes.nodes[i].name
        for gang in {move.gang: None for move in on_node}:
            if not self._is_open(gang):
                continue
            if gang.may_grow and self.law.takes_growth:
                for lump in growth(self.board, gang):
                    if any(pod.node == node for _, pod in lump.pods):
                        yield lump
            if self.law.takes_gangs and not self.is_safe(gang):
                yield self._all_of(gang)

    def lumps_of(self, gang: Gang) -> Iterator[Lump]:
        if not self._is_open(gang):
            return
        if self.law.takes_growth and gang.may_grow:
            yield from growth(self.board, gang)
        if self.law.takes_gangs and not self.is_safe(gang):
            yield self._all_of(gang)

    def _is_open(self, gang: Gang) -> bool:
        return self._may_look_at(gang.account) and self.law.may_take_from(gang) and self._at_hand(gang)

    def _all_of(self, gang: Gang) -> Lump:
        found = self._whole.get(gang.name)
        if found is None:
            found = self._whole[gang.name] = whole(self.board, gang)
        return found

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
        open_to = self.law.may_take_from
        return {
            index[pod.node]
            for account in self.law.projects()
            for gang in self.board.by_project[account].values()
            if open_to(gang)
            for part in gang.parts
            for pod in part.live.values()
        }

    def ordered(self, lumps: Iterable[Lump]) -> list[Lump]:
        """Those the law allows to be taken now, who gives way first in front."""
        law = self.law
        allowed = [(key, lump) for lump in lumps if (key := law.key(lump)) is not None]
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
        found = self._safe.get(gang.name)
        if found is None:
            found = self._safe[gang.name] = not self._at_hand(gang) or self.law.is_safe(gang)
        return found

    def _at_hand(self, gang: Gang) -> bool:
        """Who was served by moving others in this cycle, or was moved, is left alone until the next."""
        return gang is not self.law.gang and gang.name not in self.board.settled

    def _may_look_at(self, account: Account) -> bool:
        found = self._looked.get(account.name)
        if found is None:
            found = self._looked[account.name] = self.law.may_look_at(account)
        return found


def _by_key(entry: tuple[Key, Lump]) -> Key:
    return entry[0]
