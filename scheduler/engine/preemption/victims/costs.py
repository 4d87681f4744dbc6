"""Find and clear the cheapest node for one replica."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole
from scheduler.engine.board.ledger import QueueAccount
from scheduler.engine.board.nodes import Slot
from scheduler.engine.model import Strategy
from scheduler.engine.placement.slots import UsableCapacity, find_slot_on_node, has_room
from scheduler.engine.preemption.policies.base import Key
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import EvictedByQueue, Victim, add_evicted_amounts

# Stage of the victim queue, cost of clearing the node regardless of queues, node index, and victims.
PricedNode = tuple[Key, Key, int, Sequence[Victim]]
# Each victim queue's account and nodes, by queue name.
PricedNodesByQueue = dict[str, tuple[QueueAccount, list[PricedNode]]]


@dataclass(slots=True)
class NodeCostCache:
    """Node costs that the first proposal computes and later proposals reuse."""

    priced_nodes: PricedNodesByQueue | None = None


class NodeCosts:
    """Nodes sorted by the cost of clearing them, in one heap per victim queue."""

    def __init__(
        self,
        selection: VictimSelection,
        part: BoardRole,
        banned: Collection[int],
        cost_cache: NodeCostCache | None = None,
    ) -> None:
        self.selection, self.part = selection, part
        self.board = selection.board
        self._nodes_by_queue: PricedNodesByQueue = {}
        if cost_cache is None or cost_cache.priced_nodes is None:
            self._compute_node_costs(banned)
        if cost_cache is not None:
            self._reuse_cached_costs(cost_cache, banned)
        self._queues: list[tuple[Key, str]] = []
        # Current cost by queue. Heap entries with a different cost are stale.
        self._queue_costs: dict[str, Key] = {}
        for name in self._nodes_by_queue:
            self._push_queue(name)

    def clear_cheapest_node(self) -> Slot | None:
        while self._queues:
            cost, name = self._queues[0]
            nodes = self._nodes_by_queue[name][1]
            if not nodes or self._queue_costs.get(name) != cost:
                heappop(self._queues)
                self._push_queue(name)
                continue
            worst_queue_stage, price, i, victims = nodes[0]
            worse = self.selection.policy.worst_queue_stage(victims)
            if worse > worst_queue_stage:
                heappop(nodes)
                self._reinsert_node(name, (worse, price, i, victims))
                continue
            now = self._queue_cost(name)
            if now > cost:
                self._queue_costs[name] = now  # the queue's cost has increased
                heapreplace(self._queues, (now, name))
                continue
            heappop(nodes)
            stale = not all(self.selection.is_available(victim) for victim in victims)
            slot = None if stale else self._clear_node(i, victims)
            if stale or slot is not None:
                self._recompute_node_cost(i)
            if slot is not None:
                return slot
        return None

    def _compute_node_costs(self, banned: Collection[int]) -> None:
        ready, mask = self.board.nodes.ready, self.part.mask
        for i in sorted(self.selection.nodes_with_victim_candidates()):
            if ready[i] and i not in banned and (mask is None or mask[i]):
                self._compute_node_cost(i)

    def _reuse_cached_costs(self, cost_cache: NodeCostCache, banned: Collection[int]) -> None:
        if cost_cache.priced_nodes is None:
            cost_cache.priced_nodes = {
                name: (queue, list(nodes)) for name, (queue, nodes) in self._nodes_by_queue.items()
            }
            return
        for name, (queue, nodes) in cost_cache.priced_nodes.items():
            left = [node for node in nodes if node[2] not in banned]
            if left:
                heapify(left)
                self._nodes_by_queue[name] = queue, left

    def _compute_node_cost(self, i: int) -> str | None:
        """Compute the cost of clearing a node.

        Return the name of the node's victim queue, or None if the node cannot be cleared.
        """
        result = cheapest_victims_on_node(self.selection, self.part, i)
        if result is None:
            return None
        queue, policy = self._victim_queue(result), self.selection.policy
        if queue.name not in self._nodes_by_queue:
            self._nodes_by_queue[queue.name] = (queue, [])
        heappush(
            self._nodes_by_queue[queue.name][1],
            (policy.worst_queue_stage(result), policy.cost(result), i, result),
        )
        return queue.name

    def _victim_queue(self, victims: Sequence[Victim]) -> QueueAccount:
        queues = {victim.gang.account: None for victim in victims}
        return next(iter(queues)) if len(queues) == 1 else max(queues, key=self.selection.policy.queue_key)

    def _recompute_node_cost(self, i: int) -> None:
        name = self._compute_node_cost(i)
        if name is not None:
            self._push_queue(name)

    def _push_queue(self, name: str) -> None:
        if not self._nodes_by_queue[name][1]:
            self._queue_costs.pop(name, None)
            return
        cost, listed = self._queue_cost(name), self._queue_costs.get(name)
        if listed is None or cost < listed:
            self._queue_costs[name] = cost
            heappush(self._queues, (cost, name))

    def _reinsert_node(self, name: str, node: PricedNode) -> None:
        _, _, i, victims = node
        queues = {victim.gang.account for victim in victims}
        if any(move.gang.account not in queues for move in self.board.on_node[i].values()):
            self._recompute_node_cost(i)
        else:
            heappush(self._nodes_by_queue[name][1], node)

    def _queue_cost(self, name: str) -> Key:
        """Return the sort key of the queue's cheapest node, comparable with `victims_sort_key`."""
        queue, nodes = self._nodes_by_queue[name]
        worst_queue_stage, cost, i, _ = nodes[0]
        return (*worst_queue_stage, cost[0], *self.selection.policy.queue_key(queue), *cost[1:], i)

    def _clear_node(self, i: int, victims: Sequence[Victim]) -> Slot | None:
        board, selection = self.board, self.selection
        start, count = board.log_position(), len(selection.selected)
        if all(selection.select(victim) for victim in victims) and has_room(
            board.nodes, i, self.part, UsableCapacity.LEAVING
        ):
            spread = board.pool.device_strategy is Strategy.SPREAD
            slot = find_slot_on_node(board.nodes, i, self.part, UsableCapacity.LEAVING, spread)
            if slot is not None:
                return slot
        board.rewind(start)
        selection.keep_first_victims(count)
        return None


def cheapest_victims_on_node(selection: VictimSelection, part: BoardRole, i: int) -> list[Victim] | None:
    """Return the cheapest victims that make room for one more replica on the node, or None if there
    are none.
    """
    room = _ReplicaRoom(selection.board, part, i)
    if not room.has_devices:
        return None
    ordered = [
        victim
        for victim in selection.sort_in_eviction_order(selection.victims_on_node(i))
        if room.benefits_from(victim)
    ]
    sets: list[list[Victim]] = []
    missing = room.missing
    single_victim = next(
        (victim for victim in ordered if victim.amounts[0] >= missing and room.fits_after_evicting([victim])),
        None,
    )
    if single_victim is not None:
        sets.append([single_victim])
    chosen: list[Victim] = []
    for victim in ordered:
        if not _conflicts_with_chosen_victims(victim, chosen):
            chosen.append(victim)
            missing -= victim.amounts[0]
            if missing <= 0 and room.fits_after_evicting(chosen):
                sets.append(_remove_unneeded_victims(room, chosen))
                break
    if len(chosen) > 1 and any(victim.amounts[0] != chosen[0].amounts[0] for victim in ordered):
        sets += _select_largest(room, ordered)
    if (
        sets
        and len(chosen) > 1
        and selection.policy.worst_queue_stage(chosen) > selection.policy.worst_queue_stage(chosen[:1])
    ):
        sets += _select_across_queues(selection, room, ordered)
    if len(sets) < 2:
        return sets[0] if sets else None
    return min(sets, key=lambda victims: victims_sort_key(selection, victims))


def _select_largest(room: "_ReplicaRoom", ordered: Sequence[Victim]) -> list[list[Victim]]:
    """Select the largest victims first, because a few large victims may free enough."""
    chosen: list[Victim] = []
    # The sort is stable: victims of equal size stay in order of cost, cheapest first.
    for victim in sorted(ordered, key=lambda victim: -victim.amounts[0]):
        if not _conflicts_with_chosen_victims(victim, chosen):
            chosen.append(victim)
            if room.fits_after_evicting(chosen):
                return [_remove_unneeded_victims(room, chosen)]
    return []


def _select_across_queues(
    selection: VictimSelection, room: "_ReplicaRoom", ordered: Sequence[Victim]
) -> list[list[Victim]]:
    """Select victims one by one until they free enough.

    Return a list that contains the selection, or an empty list if all victims together do not free enough.
    """
    chosen: list[Victim] = []
    left, evicted, worst = list(ordered), EvictedByQueue(), Key()
    while left and not room.fits_after_evicting(chosen):
        stages = [max(worst, selection.policy.queue_stage(victim, evicted)) for victim in left]
        stage = min(stages)
        victim = left.pop(stages.index(stage))  # take the first of several equal victims
        if not _conflicts_with_chosen_victims(victim, chosen):
            chosen.append(victim)
            worst = stage
            add_evicted_amounts(evicted, victim)
    return [_remove_unneeded_victims(room, chosen)] if room.fits_after_evicting(chosen) else []


def victims_sort_key(selection: VictimSelection, victims: Sequence[Victim]) -> Key:
    """Return a sort key for comparing sets of victims, so that the cheapest set comes first."""
    queue = max(selection.policy.queue_key(victim.gang.account) for victim in victims)
    cost = selection.policy.cost(victims)
    return (*selection.policy.worst_queue_stage(victims), cost[0], *queue, *cost[1:])


def _conflicts_with_chosen_victims(victim: Victim, chosen: Sequence[Victim]) -> bool:
    gang = victim.gang
    same = [other for other in chosen if other.gang is gang]
    if not same:
        return False
    if victim.is_gang or any(other.is_gang for other in same):
        return True
    pods = {id(pod) for _, pod in victim.pods}
    if any(id(pod) in pods for other in same for _, pod in other.pods):
        return True  # both victims include the same follower
    part = victim.pods[0][0]
    return sum(other.pods[0][0] is part for other in same) >= part.replica_count - part.role.min


def _remove_unneeded_victims(room: "_ReplicaRoom", chosen: list[Victim]) -> list[Victim]:
    """Remove the victims that are not needed, starting with the last, and return the rest."""
    spare = sum([victim.amounts[0] for victim in chosen]) - room.missing
    for victim in tuple(reversed(chosen)) if len(chosen) > 1 else ():
        if victim.amounts[0] > spare:
            continue
        rest = [other for other in chosen if other is not victim]
        if rest and room.fits_after_evicting(rest):
            chosen, spare = rest, spare - victim.amounts[0]
    return chosen


class _ReplicaRoom:
    """Space for one replica on one node, once the selected victims have been evicted."""

    def __init__(self, board: Board, part: BoardRole, i: int) -> None:
        self.i, self.part, self.nodes = i, part, board.nodes
        self.node = board.nodes.nodes[i].name
        self.milli = board.nodes.device_share_milli(i, part.request)
        self.has_devices = len(board.nodes.devices[i]) >= part.request.devices and self.milli <= MILLI
        # Lower bound on the missing milli-GPUs.
        self.missing = self.milli * part.request.devices - board.nodes.gpu[i]

    def benefits_from(self, victim: Victim) -> bool:
        """Return whether evicting the victim frees, on this node, a resource that the replica requests."""
        request = self.part.request
        for part, pod in victim.pods:
            if pod.node == self.node:
                requested = part.request
                if (pod.devices and request.devices) or (requested.limit_cpu and request.limit_cpu):
                    return True
                if (requested.limit_memory_mib and request.limit_memory_mib) or self.nodes.pods[self.i] < 1:
                    return True
        return False

    def fits_after_evicting(self, victims: Sequence[Victim]) -> bool:
        nodes, i, request = self.nodes, self.i, self.part.request
        if sum([victim.amounts[0] for victim in victims]) < self.missing:
            return False  # insufficient even if all victims ran on this node
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
