"""Enumerate sets of victims that free enough in total, cheapest first.

Interchangeable workloads are enumerated by number only. Workloads of one queue and size are interchangeable
if other workloads can move, or else if they run on the same nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, least_request, node_amount
from scheduler.engine.board.ledger import CPU, GPU, MEMORY, QueueAccount, main_resource
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.preemption.bounds import max_gpus_saved_by_moves
from scheduler.engine.preemption.policies.base import Key, PreemptionPolicy
from scheduler.engine.preemption.victims.costs import full_cost
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import Victim

MAX_VICTIMS = 64
MAX_GROUPS = 32


def select_all(selection: VictimSelection, victims: Sequence[Victim]) -> bool:
    """Select the victims, smallest first, because a queue must exceed its threshold before its last eviction.

    A gang's size excludes its extra replicas, because extra replicas could be evicted first.
    """
    return all(selection.select(victim) for victim in sorted(victims, key=_size_key))


def _size_key(victim: Victim) -> tuple[object, ...]:
    sizes = (total - extra for total, extra in zip(victim.amounts, victim.extra_amounts, strict=True))
    return (*sizes, victim.is_gang, victim.gang.name, -victim.index)


@dataclass(frozen=True, slots=True)
class _VictimSet:
    """Number of victims from each group. Larger sets add victims only from group `last` on."""

    counts: tuple[int, ...]
    victims: tuple[Victim, ...]
    last: int = 0


def sufficient_sets(
    policy: PreemptionPolicy, arrangement: Arrangement, max_priced: int, *, may_move: bool = True
) -> Iterator[tuple[int, Sequence[Victim]]]:
    """Yield (amount below quota, victims) pairs whose victims free enough resources in total, cheapest first.

    At most `max_priced` victims are priced, summed over all sets. If `may_move` is False, the victims' nodes
    are taken into account.
    """
    selection = VictimSelection(policy.board, policy)
    usable = _usable_nodes(policy.board, policy, arrangement)
    groups = _victim_groups(selection, usable, may_move)
    missing = _missing_amounts(policy, arrangement, usable)
    if may_move and GPU in missing:
        missing[GPU] -= max_gpus_saved_by_moves(policy.board)
    if missing.get(GPU, 0) > MAX_VICTIMS * max((group[0].amounts[GPU] for group in groups), default=0):
        return
    heap: list[tuple[int, Key, tuple[int, ...], _VictimSet]] = []
    _push_set(heap, selection, _VictimSet((0,) * len(groups), ()))
    priced = 0
    while heap:
        below, _, _, current = heappop(heap)
        if current.victims and all(
            sum([_freed(victim, kind) for victim in current.victims]) >= amount
            for kind, amount in missing.items()
        ):
            yield below, current.victims  # larger sets follow, because fairness may require more victims
        for i in range(current.last, len(groups)):
            count = current.counts[i]
            if count < len(groups[i]) and priced < max_priced and len(current.victims) < MAX_VICTIMS:
                priced += 1 + len(current.victims)
                counts = (*current.counts[:i], count + 1, *current.counts[i + 1 :])
                _push_set(heap, selection, _VictimSet(counts, (*current.victims, groups[i][count]), i))


def _push_set(
    heap: list[tuple[int, Key, tuple[int, ...], _VictimSet]], selection: VictimSelection, entry: _VictimSet
) -> None:
    cost = full_cost(selection, entry.victims) if entry.victims else ()
    heappush(heap, (amount_below_quota(selection.policy, entry.victims), cost, entry.counts, entry))


def amount_below_quota(policy: PreemptionPolicy, victims: Sequence[Victim]) -> int:
    """Return the total amount below quota of all queues if the victims were evicted."""
    kind, freed = main_resource(policy.requested), dict[QueueAccount, int]()
    for victim in victims:
        for account in victim.gang.account.path:
            if account not in policy.gang.account.path:
                freed[account] = freed.get(account, 0) + victim.amounts[kind]
    return sum(
        max(0, amount - max(0, account.allocated[kind] - account.quota[kind]))
        for account, amount in freed.items()
    )


def _usable_nodes(board: Board, policy: PreemptionPolicy, arrangement: Arrangement) -> frozenset[int]:
    """Return the nodes that might run at least one replica."""
    within = available_nodes(board, policy.gang)
    masks = [need.part.mask for need in arrangement]
    return frozenset(
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and (within is None or i in within) and any(mask is None or mask[i] for mask in masks)
    )


def _freed(victim: Victim, kind: int) -> int:
    """Return the amount that the victim frees on its nodes. Nodes are charged by limits."""
    if kind == GPU:
        return victim.amounts[GPU]
    return sum(node_amount(part, kind) for part, _ in victim.pods)


def _missing_amounts(
    policy: PreemptionPolicy, arrangement: Arrangement, usable: frozenset[int]
) -> dict[int, int]:
    """Return the missing amount of each requested resource if all free resources could be used."""
    nodes = policy.board.nodes
    gpus, _, _ = least_request(arrangement)
    requested = (
        gpus,
        *(sum(node_amount(need.part, kind) * need.count for need in arrangement) for kind in (CPU, MEMORY)),
    )
    return {
        kind: requested[kind] - sum(max(0, (nodes.gpu, nodes.cpu, nodes.memory)[kind][i]) for i in usable)
        for kind in policy.kinds
    }


def _victim_groups(selection: VictimSelection, usable: frozenset[int], may_move: bool) -> list[list[Victim]]:
    """Group the possible victims that free usable resources by queue and size, cheapest first.

    If the other pods cannot move, the victims are also grouped by node.
    """
    index = selection.board.nodes.index
    groups: dict[tuple[object, ...], list[tuple[Key, Victim]]] = {}
    for victim in selection.candidates():
        key = selection.policy.key(victim)
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
