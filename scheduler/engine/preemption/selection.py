"""Remove victims from the board for one preemptor."""

from collections.abc import Iterable, Iterator
from operator import itemgetter

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.preemption.policy import PreemptionPolicy
from scheduler.engine.preemption.victims import Victim, growth, single, whole


class VictimSelection:
    """Selects victims under one policy and records the victims taken off the board."""

    def __init__(self, board: Board, policy: PreemptionPolicy) -> None:
        self.board, self.policy = board, policy
        self.selected: list[Victim] = []
        self.rules: dict[int, str] = {}  # by the victim's `id`
        self._whole: dict[str, Victim] = {}
        self._looked: dict[str, bool] = {}
        self._safe: dict[str, bool] = {}

    def victims_on(self, i: int) -> Iterator[Victim]:
        """Yield possible victims with pods on this node, in no particular order."""
        on_node = self.board.on_node[i].values()
        if self.policy.moves_only:
            for move in on_node:
                if not self.is_protected(move.gang):
                    yield single(self.board, move.gang, move.part, move.pod)
            return
        node = self.board.nodes.nodes[i].name
        for gang in {move.gang: None for move in on_node}:
            if not self._is_open(gang):
                continue
            if gang.may_grow and self.policy.takes_growth:
                for victim in growth(self.board, gang):
                    if any(pod.node == node for _, pod in victim.pods):
                        yield victim
            if self.policy.takes_gangs and not self.is_protected(gang):
                yield self._all_of(gang)

    def victims_of(self, gang: Gang) -> Iterator[Victim]:
        if not self._is_open(gang):
            return
        if self.policy.takes_growth and gang.may_grow:
            yield from growth(self.board, gang)
        if self.policy.takes_gangs and not self.is_protected(gang):
            yield self._all_of(gang)

    def _is_open(self, gang: Gang) -> bool:
        return self._may_look_at(gang.account) and self.policy.may_take_from(gang) and self._at_hand(gang)

    def _all_of(self, gang: Gang) -> Victim:
        result = self._whole.get(gang.name)
        if result is None:
            result = self._whole[gang.name] = whole(self.board, gang)
        return result

    def candidates(self) -> Iterator[Victim]:
        """Yield all victims that could be selected."""
        for account, gangs in self.board.by_project.items():
            if self._may_look_at(account):
                for gang in gangs.values():
                    if self.policy.moves_only:
                        if not self.is_protected(gang):
                            for part in gang.parts:
                                for pod in part.live.values():
                                    yield single(self.board, gang, part, pod)
                    else:
                        yield from self.victims_of(gang)

    def nodes_in_reach(self) -> set[int]:
        """Return the nodes with pods of possible victims."""
        index = self.board.nodes.index
        open_to = self.policy.may_take_from
        return {
            index[pod.node]
            for account in self.policy.projects()
            for gang in self.board.by_project[account].values()
            if open_to(gang)
            for part in gang.parts
            for pod in part.live.values()
        }

    def ordered(self, victims: Iterable[Victim]) -> list[Victim]:
        """Return the victims that the policy allows now, in the order of eviction."""
        policy = self.policy
        allowed = [(key, victim) for victim in victims if (key := policy.key(victim)) is not None]
        allowed.sort(key=itemgetter(0))
        return [victim for _, victim in allowed]

    def take(self, victim: Victim) -> bool:
        """Take a victim off the board if the policy still allows it."""
        rule = self.policy.rule(victim)
        if rule is None or not self.is_available(victim):
            return False
        for part, pod in victim.pods:
            self.board.drop(victim.gang, part, pod)
        self._whole.pop(victim.gang.name, None)
        self._looked.clear()
        self.rules[id(victim)] = rule
        self.selected.append(victim)
        return True

    def is_available(self, victim: Victim) -> bool:
        """Return whether all pods of the victim still run and its gang can still spare growth."""
        if any(part.live.get(pod.index) is not pod for part, pod in victim.pods):
            return False
        if victim.whole or self.policy.moves_only:
            return True
        part = victim.pods[0][0]
        if len(victim.pods) == 1 and part.count > part.role.min:
            return True
        return any({id(p) for _, p in other.pods} == {id(p) for _, p in victim.pods}
                   for other in growth(self.board, victim.gang))  # fmt: skip

    def forget(self, count: int) -> None:
        """Forget all but the first `count` victims after the board was rewound."""
        for victim in self.selected[count:]:
            self._whole.pop(victim.gang.name, None)
        self._looked.clear()
        del self.selected[count:]

    def is_protected(self, gang: Gang) -> bool:
        result = self._safe.get(gang.name)
        if result is None:
            result = self._safe[gang.name] = not self._at_hand(gang) or self.policy.is_protected(gang)
        return result

    def _at_hand(self, gang: Gang) -> bool:
        """Return whether the gang may be a victim. Preemptors and moved gangs of this cycle may not."""
        return gang is not self.policy.gang and gang.name not in self.board.cycle.excluded

    def _may_look_at(self, account: QueueAccount) -> bool:
        result = self._looked.get(account.name)
        if result is None:
            result = self._looked[account.name] = self.policy.may_take_from_queue(account)
        return result
