"""Enumerate sets of victims that free enough resources in total, cheapest first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, node_usage_per_replica, smallest_request
from scheduler.engine.board.ledger import CPU, GPU, MEMORY, NOTHING, main_resource
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.preemption.bounds import max_gpus_saved_by_moves
from scheduler.engine.preemption.policies.base import Key, PreemptionPolicy
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import EvictedByQueue, Victim, add_evicted_amounts

MAX_VICTIMS = 64
MAX_GROUPS = 32


def select_all(selection: VictimSelection, victims: Sequence[Victim]) -> bool:
    """Select the victims, smallest first. Return whether all could be selected."""
    # The largest victim comes last, because a queue must exceed its threshold before its last eviction.
    return all(selection.select(victim) for victim in sorted(victims, key=_size_key))


def _size_key(victim: Victim) -> tuple[object, ...]:
    sizes = (total - extra for total, extra in zip(victim.amounts, victim.extra_amounts, strict=True))
    return (*sizes, victim.is_gang, victim.gang.name, -victim.index)


# Sort key of a victim set: amount below quota, worst queue stage, stopped workloads, queue, other costs.
SetCost = tuple[int, Key, float | int | str, Key, Key]


@dataclass(frozen=True, slots=True)
class _VictimSet:
    """Victims in eviction order, with totals. Adding a victim never reduces the cost."""

    missing: tuple[int, ...]  # amount that must still be freed, for each resource of the policy
    victims: tuple[Victim, ...] = ()
    evicted: EvictedByQueue = field(default_factory=dict)
    below_quota: int = 0
    stage: Key = ()
    queue: Key = ()

    def add(self, policy: PreemptionPolicy, victim: Victim) -> "_VictimSet":
        project, kind = victim.gang.account, main_resource(policy.requested)
        evicted, below_quota = self.evicted.copy(), self.below_quota
        add_evicted_amounts(evicted, victim)
        for queue in project.path:
            if queue not in policy.gang.account.path:
                before = self.evicted.get(queue, NOTHING)
                borrowed = max(0, queue.allocated[kind] - queue.quota[kind])
                below_quota += max(0, evicted[queue][kind] - borrowed) - max(0, before[kind] - borrowed)
        missing = [
            amount - _freed_amount(victim, kind)
            for amount, kind in zip(self.missing, policy.kinds, strict=True)
        ]
        stage = max(self.stage, policy.queue_stage(victim, self.evicted))
        queue_key = max(self.queue, policy.queue_key(project))
        return _VictimSet(tuple(missing), (*self.victims, victim), evicted, below_quota, stage, queue_key)

    def is_sufficient(self) -> bool:
        return bool(self.victims) and max(self.missing, default=0) <= 0

    def cost(self, policy: PreemptionPolicy) -> SetCost:
        stopped, *cost = policy.cost(self.victims)
        return self.below_quota, self.stage, stopped, self.queue, tuple(cost)


def victim_set_cost(policy: PreemptionPolicy, victims: Sequence[Victim]) -> SetCost:
    """Return the sort key that `sufficient_victim_sets` uses to order sets of victims."""
    result = _VictimSet((0,) * len(policy.kinds))
    for victim in victims:
        result = result.add(policy, victim)
    return result.cost(policy)


def sufficient_victim_sets(
    policy: PreemptionPolicy,
    arrangement: Arrangement,
    max_priced: int,
    *,
    may_move: bool = True,
    max_cost: SetCost | None = None,
) -> Iterator[tuple[int, Sequence[Victim]]]:
    """Yield (amount below quota, victims) for each set of victims that frees enough resources in total.

    The cheapest set comes first. Costs are computed for at most `max_priced` victims. With `max_cost`, only
    sets that cost less are yielded.
    """
    selection = VictimSelection(policy.board, policy)
    usable = _usable_nodes(policy.board, policy, arrangement)
    groups = _victim_groups(selection, usable, may_move)
    missing = _missing_amounts(policy, arrangement, usable)
    if may_move and GPU in missing:
        missing[GPU] -= max_gpus_saved_by_moves(policy.board)
    if missing.get(GPU, 0) > MAX_VICTIMS * max((group[0].amounts[GPU] for group in groups), default=0):
        return
    # Sets by cost and number of victims from each group. Larger sets add victims only from group `last` on.
    heap: list[tuple[SetCost | None, tuple[int, ...], int, _VictimSet]] = [
        (None, (0,) * len(groups), 0, _VictimSet(tuple(missing.values())))
    ]
    priced = 0
    while heap:
        _, counts, last, current = heappop(heap)
        if current.is_sufficient():
            # Larger sets follow, because fairness may require more victims.
            yield current.below_quota, current.victims
        for i in range(last, len(groups)):
            if counts[i] < len(groups[i]) and priced < max_priced and len(current.victims) < MAX_VICTIMS:
                priced += 1 + len(current.victims)
                larger = current.add(policy, groups[i][counts[i]])
                cost = larger.cost(policy)
                if max_cost is None or cost < max_cost:
                    heappush(heap, (cost, (*counts[:i], counts[i] + 1, *counts[i + 1 :]), i, larger))


def _usable_nodes(board: Board, policy: PreemptionPolicy, arrangement: Arrangement) -> frozenset[int]:
    """Return the nodes that might run at least one replica."""
    within = available_nodes(board, policy.gang)
    masks = [need.part.mask for need in arrangement]
    return frozenset(
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and (within is None or i in within) and any(mask is None or mask[i] for mask in masks)
    )


def _freed_amount(victim: Victim, kind: int) -> int:
    if kind == GPU:
        return victim.amounts[GPU]
    return sum(node_usage_per_replica(part, kind) for part, _ in victim.pods)


def _missing_amounts(
    policy: PreemptionPolicy, arrangement: Arrangement, usable: frozenset[int]
) -> dict[int, int]:
    """Return how much of each resource would be missing even if all free resources could be used."""
    nodes = policy.board.nodes
    gpus, _, _ = smallest_request(arrangement)
    requested = (
        gpus,
        *(
            sum(node_usage_per_replica(need.part, kind) * need.count for need in arrangement)
            for kind in (CPU, MEMORY)
        ),
    )
    return {
        kind: requested[kind] - sum(max(0, (nodes.gpu, nodes.cpu, nodes.memory)[kind][i]) for i in usable)
        for kind in policy.kinds
    }


def _victim_groups(selection: VictimSelection, usable: frozenset[int], may_move: bool) -> list[list[Victim]]:
    """Group the possible victims by queue and size, cheapest first."""
    index = selection.board.nodes.index
    groups: dict[tuple[object, ...], list[tuple[Key, Victim]]] = {}
    for victim in selection.victim_candidates():
        key = selection.policy.victim_sort_key(victim)
        if key is not None and any(index[pod.node] in usable for _, pod in victim.pods):
            gang = victim.gang
            group: tuple[object, ...] = (
                (gang.account.name, victim.amounts)
                if victim.is_gang
                else (gang.name, victim.pods[0][0], victim.amounts)
            )
            if not may_move:
                group = (*group, *sorted(pod.node for _, pod in victim.pods))
            groups.setdefault(group, []).append((key, victim))
    ordered = sorted(
        (sorted(group, key=lambda entry: entry[0]) for group in groups.values()),
        key=lambda group: group[0][0],
    )
    return [[victim for _, victim in group] for group in ordered[:MAX_GROUPS]]
