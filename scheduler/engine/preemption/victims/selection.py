"""Select victims for one preemptor and remove them from the board."""

from collections.abc import Iterable, Iterator
from operator import itemgetter

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import Slot
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.victims.units import (
    Victim,
    extra_replica_victims,
    gang_as_victim,
    single_pod_victim,
)


class VictimSelection:
    """Victims selected under one policy and removed from the board."""

    def __init__(self, board: Board, policy: PreemptionPolicy) -> None:
        self.board, self.policy = board, policy
        self.selected: list[Victim] = []
        self.planned_slots: dict[int, Slot] = {}  # slots of pods that will not be evicted, by `id(pod)`
        self.rules: dict[int, str] = {}  # rule names by `id(victim)`
        self._gang_victims: dict[str, Victim] = {}
        self._allowed_queues: dict[str, bool] = {}
        self._protected: dict[str, bool] = {}

    def victims_on_node(self, i: int) -> Iterator[Victim]:
        """Yield possible victims with pods on the node, in no particular order."""
        on_node = self.board.on_node[i].values()
        if self.policy.moves_only:
            for move in on_node:
                if not self.is_protected(move.gang):
                    yield single_pod_victim(self.board, move.gang, move.part, move.pod)
            return
        node = self.board.nodes.nodes[i].name
        for gang in {move.gang: None for move in on_node}:
            if not self._may_be_victim(gang):
                continue
            if gang.is_elastic and self.policy.evicts_extra_replicas:
                for victim in extra_replica_victims(self.board, gang):
                    if any(pod.node == node for _, pod in victim.pods):
                        yield victim
            if self.policy.evicts_gangs and not self.is_protected(gang):
                yield self._gang_victim(gang)

    def victims_in_gang(self, gang: Gang) -> Iterator[Victim]:
        if not self._may_be_victim(gang):
            return
        if self.policy.evicts_extra_replicas and gang.is_elastic:
            yield from extra_replica_victims(self.board, gang)
        if self.policy.evicts_gangs and not self.is_protected(gang):
            yield self._gang_victim(gang)

    def _may_be_victim(self, gang: Gang) -> bool:
        return (
            self._is_queue_allowed(gang.account)
            and self.policy.may_evict_gang(gang)
            and self._is_eligible(gang)
        )

    def _gang_victim(self, gang: Gang) -> Victim:
        result = self._gang_victims.get(gang.name)
        if result is None:
            result = self._gang_victims[gang.name] = gang_as_victim(self.board, gang)
        return result

    def victim_candidates(self) -> Iterator[Victim]:
        """Yield all victims that could be selected."""
        by_project = self.board.by_project
        for account in self.policy.projects() if self.policy.is_limited_to_own_project else by_project:
            if self._is_queue_allowed(account):
                for gang in by_project[account].values():
                    if self.policy.moves_only:
                        if not self.is_protected(gang):
                            for part in gang.parts:
                                for pod in part.live.values():
                                    yield single_pod_victim(self.board, gang, part, pod)
                    else:
                        yield from self.victims_in_gang(gang)

    def nodes_with_victim_candidates(self) -> set[int]:
        """Return the nodes with pods of possible victims."""
        index = self.board.nodes.index
        may_evict = self.policy.may_evict_gang
        return {
            index[pod.node]
            for account in self.policy.projects()
            for gang in self.board.by_project[account].values()
            if may_evict(gang)
            for part in gang.parts
            for pod in part.live.values()
        }

    def sort_in_eviction_order(self, victims: Iterable[Victim]) -> list[Victim]:
        """Return the victims that the policy allows now, in eviction order."""
        policy = self.policy
        allowed = [(key, victim) for victim in victims if (key := policy.victim_sort_key(victim)) is not None]
        allowed.sort(key=itemgetter(0))
        return [victim for _, victim in allowed]

    def select(self, victim: Victim) -> bool:
        """Remove a victim from the board if the policy still allows its eviction.

        Return whether the victim was removed.
        """
        rule = self.policy.rule(victim)
        if rule is None or not self.is_available(victim):
            return False
        for part, pod in victim.pods:
            self.board.remove_pod(victim.gang, part, pod)
        self._gang_victims.pop(victim.gang.name, None)
        self._allowed_queues.clear()
        self.rules[id(victim)] = rule
        self.selected.append(victim)
        return True

    def is_available(self, victim: Victim) -> bool:
        """Return whether the victim's pods are still placed and its gang can still lose them."""
        if any(part.live.get(pod.index) is not pod for part, pod in victim.pods):
            return False
        if victim.is_gang or self.policy.moves_only:
            return True
        part = victim.pods[0][0]
        if len(victim.pods) == 1 and part.replica_count > part.role.min:
            return True
        return any({id(p) for _, p in other.pods} == {id(p) for _, p in victim.pods}
                   for other in extra_replica_victims(self.board, victim.gang))  # fmt: skip

    def keep_first_victims(self, count: int) -> None:
        """Discard all but the first `count` selected victims, after the board has been rewound."""
        for victim in self.selected[count:]:
            self._gang_victims.pop(victim.gang.name, None)
        self._allowed_queues.clear()
        del self.selected[count:]

    def is_protected(self, gang: Gang) -> bool:
        result = self._protected.get(gang.name)
        if result is None:
            result = self._protected[gang.name] = not self._is_eligible(gang) or self.policy.is_protected(
                gang
            )
        return result

    def _is_eligible(self, gang: Gang) -> bool:
        return gang is not self.policy.gang and gang.name not in self.board.cycle.excluded

    def _is_queue_allowed(self, account: QueueAccount) -> bool:
        result = self._allowed_queues.get(account.name)
        if result is None:
            result = self._allowed_queues[account.name] = self.policy.may_evict_from_queue(account)
        return result
