"""Find and clear the node that is cheapest to clear for one replica."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from berth.core.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import Spot
from scheduler.engine.model import Strategy
from scheduler.engine.placement.spots import Horizon, on_node, takes
from scheduler.engine.preemption.policy import Key
from scheduler.engine.preemption.selection import VictimSelection
from scheduler.engine.preemption.victims import Victim

# How the payer stands; what clearing costs, queues apart; the node; who goes.
Offer = tuple[Key, Key, int, Sequence[Victim]]
Offers = dict[str, tuple[QueueAccount, list[Offer]]]  # by the payer's name


@dataclass(slots=True)
class OfferCache:
    """Node offers of the first proposal, shared with the next ones."""

    offers: Offers | None = None


class Costs:
    """Nodes by the cost of clearing them, in one heap per victim queue.

    What is taken changes how queues compare, but not how the nodes that one queue pays for do: so only
    the queues are compared again, and a node is looked at again when its payer has come down to its share.
    """

    def __init__(
        self,
        selection: VictimSelection,
        part: BoardRole,
        banned: Collection[int],
        offer_cache: OfferCache | None = None,
    ) -> None:
        """`known`: what was found before of nodes on this board, as it stands now."""
        self.selection, self.part = selection, part
        self.board = selection.board
        self._offers: Offers = {}
        if offer_cache is None or offer_cache.offers is None:
            self._look_around(banned)
        if offer_cache is not None:
            self._share(offer_cache, banned)
        self._queues: list[tuple[Key, str]] = []
        self._listed: dict[str, Key] = {}  # for how much each stands there; what else is there is old
        for name in self._offers:
            self._list(name)

    def clear_cheapest(self) -> Spot | None:
        while self._queues:
            cost, name = self._queues[0]
            offers = self._offers[name][1]
            if not offers or self._listed.get(name) != cost:
                heappop(self._queues)
                self._list(name)
                continue
            standing, price, i, victims = offers[0]
            worse = self.selection.policy.standing(victims)
            if worse > standing:
                heappop(offers)
                self._offer_again(name, (worse, price, i, victims))
                continue
            now = self._cost(name)
            if now > cost:
                self._listed[name] = now  # it has become dearer meanwhile
                heapreplace(self._queues, (now, name))
                continue
            heappop(offers)
            stale = not all(self.selection.is_available(victim) for victim in victims)
            spot = None if stale else self._clear(i, victims)
            if stale or spot is not None:
                self._look_again(i)
            if spot is not None:
                return spot
        return None

    def _look_around(self, banned: Collection[int]) -> None:
        ready, mask = self.board.nodes.ready, self.part.mask
        for i in sorted(self.selection.nodes_in_reach()):
            if ready[i] and i not in banned and (mask is None or mask[i]):
                self._look_at(i)

    def _share(self, offer_cache: OfferCache, banned: Collection[int]) -> None:
        """Less is open to later proposals, never more."""
        if offer_cache.offers is None:
            offer_cache.offers = {
                name: (payer, list(offers)) for name, (payer, offers) in self._offers.items()
            }
            return
        for name, (payer, offers) in offer_cache.offers.items():
            left = [offer for offer in offers if offer[2] not in banned]
            if left:
                heapify(left)
                self._offers[name] = payer, left

    def _look_at(self, i: int) -> str | None:
        """Who would pay for clearing it, with the offer noted; None: it cannot be cleared."""
        result = cheapest_on(self.selection, self.part, i)
        if result is None:
            return None
        payer, policy = self._payer(result), self.selection.policy
        if payer.name not in self._offers:
            self._offers[payer.name] = (payer, [])
        heappush(self._offers[payer.name][1], (policy.standing(result), policy.cost(result), i, result))
        return payer.name

    def _payer(self, victims: Sequence[Victim]) -> QueueAccount:
        payers = {victim.gang.account: None for victim in victims}
        return next(iter(payers)) if len(payers) == 1 else max(payers, key=self.selection.policy.queue_key)

    def _look_again(self, i: int) -> None:
        name = self._look_at(i)
        if name is not None:
            self._list(name)

    def _list(self, name: str) -> None:
        """Unless it stands in the heap for as little already."""
        if not self._offers[name][1]:
            self._listed.pop(name, None)
            return
        cost, listed = self._cost(name), self._listed.get(name)
        if listed is None or cost < listed:
            self._listed[name] = cost
            heappush(self._queues, (cost, name))

    def _offer_again(self, name: str, offer: Offer) -> None:
        """Its payer has come down meanwhile: others who stand there may have to pay before it."""
        _, _, i, victims = offer
        payers = {victim.gang.account for victim in victims}
        if any(move.gang.account not in payers for move in self.board.on_node[i].values()):
            self._look_again(i)
        else:
            heappush(self._offers[name][1], offer)

    def _cost(self, name: str) -> Key:
        """How the payer stands, the workloads stopped, then which queue, then the rest."""
        payer, offers = self._offers[name]
        standing, cost, i, _ = offers[0]
        return (*standing, cost[0], *self.selection.policy.queue_key(payer), *cost[1:], i)

    def _clear(self, i: int, victims: Sequence[Victim]) -> Spot | None:
        board, selection = self.board, self.selection
        start, count = board.mark(), len(selection.taken)
        if all(selection.take(victim) for victim in victims) and takes(
            board.nodes, i, self.part, Horizon.LEAVING
        ):
            spread = board.pool.device_strategy is Strategy.SPREAD
            spot = on_node(board.nodes, i, self.part, Horizon.LEAVING, spread)
            if spot is not None:
                return spot
        board.rewind(start)
        selection.forget(count)
        return None


def cheapest_on(selection: VictimSelection, part: BoardRole, i: int) -> list[Victim] | None:
    """Return the cheapest victims that make room for one more replica on this node."""
    room = _Room(selection.board, part, i)
    if not room.has_devices:
        return None
    ordered = [victim for victim in selection.ordered(selection.lumps_on(i)) if room.gains(victim)]
    sets: list[list[Victim]] = []
    lacking = room.lacking
    alone = next(
        (victim for victim in ordered if victim.amounts[0] >= lacking and room.suffices([victim])), None
    )
    if alone is not None:
        sets.append([alone])
    chosen: list[Victim] = []
    for victim in ordered:
        if not _clash(victim, chosen):
            chosen.append(victim)
            lacking -= victim.amounts[0]
            if lacking <= 0 and room.suffices(chosen):
                sets.append(_pruned(room, chosen))
                break
    if sets and len(chosen) > 1 and selection.policy.standing(chosen) > selection.policy.standing(chosen[:1]):
        sets += _in_turn(selection, room, ordered)
    if len(sets) < 2:
        return sets[0] if sets else None
    return min(sets, key=lambda victims: full_cost(selection, victims))


def _in_turn(selection: VictimSelection, room: "_Room", ordered: Sequence[Victim]) -> list[list[Victim]]:
    """The same, if it can be: who comes down to its share on the way lets others above theirs pay on."""
    chosen: list[Victim] = []
    left = list(ordered)
    while left and not room.suffices(chosen):
        victim = min(
            left, key=lambda victim: selection.policy.standing([*chosen, victim])
        )  # of equals the first in order
        left.remove(victim)
        if not _clash(victim, chosen):
            chosen.append(victim)
    return [_pruned(room, chosen)] if room.suffices(chosen) else []


def full_cost(selection: VictimSelection, victims: Sequence[Victim]) -> Key:
    """How the payers stand, the workloads stopped, then which queue, then the rest."""
    queue = max(selection.policy.queue_key(victim.gang.account) for victim in victims)
    cost = selection.policy.cost(victims)
    return (*selection.policy.standing(victims), cost[0], *queue, *cost[1:])


def _clash(victim: Victim, chosen: Sequence[Victim]) -> bool:
    """A gang is taken once; of growth, no more than it can spare."""
    gang = victim.gang
    same = [other for other in chosen if other.gang is gang]
    if not same:
        return False
    if victim.whole or any(other.whole for other in same):
        return True
    pods = {id(pod) for _, pod in victim.pods}
    if any(id(pod) in pods for other in same for _, pod in other.pods):
        return True  # what follows several of them
    part = victim.pods[0][0]
    return sum(other.pods[0][0] is part for other in same) >= part.count - part.role.min


def _pruned(room: "_Room", chosen: list[Victim]) -> list[Victim]:
    for victim in tuple(reversed(chosen)) if len(chosen) > 1 else ():
        rest = [other for other in chosen if other is not victim]
        if rest and room.suffices(rest):
            chosen = rest
    return chosen


class _Room:
    """What one node would have free if some lumps went, for one kind of replica."""

    def __init__(self, board: Board, part: BoardRole, i: int) -> None:
        self.i, self.part, self.nodes = i, part, board.nodes
        self.node = board.nodes.nodes[i].name
        self.milli = board.nodes.milli_on(i, part.request)
        self.has_devices = len(board.nodes.devices[i]) >= part.request.devices and self.milli <= MILLI
        self.lacking = self.milli * part.request.devices - board.nodes.gpu[i]  # of its GPUs, at least

    def gains(self, victim: Victim) -> bool:
        """Whether it frees anything here that a replica asks for."""
        request = self.part.request
        for part, pod in victim.pods:
            if pod.node == self.node:
                requested = part.request
                if (pod.devices and request.devices) or (requested.limit_cpu and request.limit_cpu):
                    return True
                if (requested.limit_memory_mib and request.limit_memory_mib) or self.nodes.pods[self.i] < 1:
                    return True
        return False

    def suffices(self, victims: Sequence[Victim]) -> bool:
        nodes, i, request = self.nodes, self.i, self.part.request
        if sum([victim.amounts[0] for victim in victims]) < self.lacking:
            return False  # not even if all of it were here
        cpu, memory, pods = nodes.cpu[i], nodes.memory[i], nodes.pods[i]
        freed: dict[int, int] = {}
        for victim in victims:
            for part, pod in victim.pods:
                if pod.node == self.node:
                    cpu += part.request.limit_cpu
                    memory += part.request.limit_memory_mib
                    pods += 1
                    for device in pod.devices:
                        freed[device] = freed.get(device, 0) + pod.milli
        if cpu < request.limit_cpu or memory < request.limit_memory_mib or pods < 1:
            return False
        if not request.devices:
            return True
        free, milli = nodes.devices[i], self.milli
        usable = sum([here + freed.get(d, 0) >= milli for d, here in enumerate(free)])
        return usable >= request.devices
