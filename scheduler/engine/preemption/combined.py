"""Combine evictions with moves: evict what the sums require, then move other pods to make room.

Sets of victims are tried cheapest first. A set that would take a queue below its quota costs more than any
set that would not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement
from scheduler.engine.board.ledger import KINDS, QueueAccount, main_resource
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.preemption.outcome import Outcome, resolve_outcome
from scheduler.engine.preemption.policies import Consolidate
from scheduler.engine.preemption.policy import Key, PreemptionPolicy
from scheduler.engine.preemption.proposals import Budget, fits_under_limits, propose
from scheduler.engine.preemption.selection import VictimSelection
from scheduler.engine.preemption.victim_costs import full_cost
from scheduler.engine.preemption.victims import Victim

MAX_VICTIMS = 64
MAX_PRICED_VICTIMS = 10_000  # summed over all sets
MAX_TRIED_SETS = 48  # on small boards; each try may move all pods, so that larger boards get fewer
MIN_TRIED_SETS = 2
MAX_PODS = 4000  # summed over the tried sets
MAX_PROPOSALS = 24  # moves tried per set
MAX_GROUPS = 32


def evict_and_move(
    policy: PreemptionPolicy, arrangement: Arrangement, *, keeps_quotas: bool
) -> tuple[VictimSelection, Outcome] | None:
    """Place the arrangement by evicting some workloads and moving others.

    Return the evictions and moves, which are applied to the board, or None if none were found. With
    `keeps_quotas`, no evictions are tried that take a queue below its quota.
    """
    board = policy.board
    consolidation = board.pool.consolidation
    if not consolidation.enabled or consolidation.max_moves == 0 or policy.moves_only:
        return None
    if not _could_fit(board, arrangement):
        return None
    start, pods = board.mark(), sum(map(len, board.on_node))
    tries = max(MIN_TRIED_SETS, min(MAX_TRIED_SETS, MAX_PODS // max(1, pods)))
    for below_quota, victims in _sufficient_sets(policy, arrangement):
        if tries <= 0 or (keeps_quotas and below_quota):
            break
        selection = VictimSelection(board, policy)
        if _take_all(selection, victims) and fits_under_limits(selection, arrangement):
            tries -= 1
            outcome = _place_by_moves(selection, arrangement)
            if outcome is not None:
                return selection, outcome
        board.rewind(start)
    return None


def _could_fit(board: Board, arrangement: Arrangement) -> bool:
    """Return whether each role might fit without all preemptible pods, by the GPUs of each node."""
    nodes = board.nodes
    for need in arrangement:
        count, gpus = 0, need.part.amounts[0]
        if not gpus or need.part.request.gpu_memory_mib:  # such a share is smaller on larger devices
            continue
        for i, on_node in enumerate(board.on_node):
            if not nodes.ready[i] or (need.part.mask is not None and not need.part.mask[i]):
                continue
            freed = sum(
                move.pod.milli * len(move.pod.devices)
                for move in on_node.values()
                if not move.gang.non_preemptible
            )
            count += (max(0, nodes.gpu[i]) + freed) // gpus
            if count >= need.count:
                break
        if count < need.count:
            return False
    return True


def total_below_quota(policy: PreemptionPolicy, before: dict[QueueAccount, tuple[int, ...]]) -> int:
    """Return by how much victim queues are now below the part of their quota that they held, summed up."""
    kind = main_resource(policy.requested)
    return sum(
        max(0, min(account.quota[kind], held[kind]) - account.allocated[kind])
        for account, held in before.items()
        if account not in policy.gang.account.path
    )


def _place_by_moves(selection: VictimSelection, arrangement: Arrangement) -> Outcome | None:
    """Place the arrangement by moves alone, after the selected victims were removed."""
    board, policy = selection.board, selection.policy
    start, moves = board.mark(), Consolidate(board, policy.gang, policy.requested)
    sides = {policy.diverging_queues(victim.gang.account) for victim in selection.selected}
    for proposal in propose(board, moves, arrangement, Budget(min(MAX_PROPOSALS, moves.max_trials))):
        outcome = resolve_outcome(proposal, start, arrangement, moves.max_moves)
        if outcome is None:
            continue
        if policy.is_fair_outcome({side for side in sides if side is not None}):
            outcome.evicted = list(selection.selected)
            return outcome
        break  # fairness depends on the victims alone
    board.rewind(start)
    return None


def _take_all(selection: VictimSelection, victims: Sequence[Victim]) -> bool:
    """Take the victims, smallest first, because a queue must exceed its threshold before the last one."""
    ordered = sorted(
        victims, key=lambda victim: (victim.whole, victim.amounts, victim.gang.name, -victim.index)
    )
    return all(selection.take(victim) for victim in ordered)


@dataclass(frozen=True, slots=True)
class _VictimSet:
    """The first victims of some groups. Later sets extend it by groups from `last` on."""

    counts: tuple[int, ...]
    victims: tuple[Victim, ...]
    last: int = 0


def _sufficient_sets(
    policy: PreemptionPolicy, arrangement: Arrangement
) -> Iterator[tuple[int, Sequence[Victim]]]:
    """Yield sets of victims that free enough in total, cheapest first, with the sum below quota."""
    selection = VictimSelection(policy.board, policy)
    usable = _usable_nodes(policy.board, policy, arrangement)
    groups = _groups(selection, usable)
    missing = _missing(policy, usable)
    largest = [max((group[0].amounts[kind] for group in groups), default=0) for kind in KINDS]
    if any(lack > MAX_VICTIMS * largest[kind] for kind, lack in missing.items()):
        return
    heap: list[tuple[int, Key, tuple[int, ...], _VictimSet]] = []
    _push(heap, selection, _VictimSet((0,) * len(groups), ()))
    priced = 0
    while heap:
        below_quota, _, _, current = heappop(heap)
        if current.victims and all(
            sum(victim.amounts[kind] for victim in current.victims) >= lack for kind, lack in missing.items()
        ):
            yield below_quota, current.victims  # fairness may require more victims, so go on from here
        for i in range(current.last, len(groups)):
            count = current.counts[i]
            if count < len(groups[i]) and priced < MAX_PRICED_VICTIMS and len(current.victims) < MAX_VICTIMS:
                priced += 1 + len(current.victims)
                counts = (*current.counts[:i], count + 1, *current.counts[i + 1 :])
                _push(heap, selection, _VictimSet(counts, (*current.victims, groups[i][count]), i))


def _push(
    heap: list[tuple[int, Key, tuple[int, ...], _VictimSet]], selection: VictimSelection, entry: _VictimSet
) -> None:
    cost = full_cost(selection, entry.victims) if entry.victims else ()
    heappush(heap, (_below_quota(selection.policy, entry.victims), cost, entry.counts, entry))


def _below_quota(policy: PreemptionPolicy, victims: Sequence[Victim]) -> int:
    """Return by how much evicting the victims takes their queues below quota, as `total_below_quota` does."""
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
    """Return the nodes on which at least one replica might run."""
    within = available_nodes(board, policy.gang)
    masks = [need.part.mask for need in arrangement]
    return frozenset(
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and (within is None or i in within) and any(mask is None or mask[i] for mask in masks)
    )


def _missing(policy: PreemptionPolicy, usable: frozenset[int]) -> dict[int, int]:
    """Return the missing amount of each requested resource, if all free resources could be used."""
    nodes = policy.board.nodes
    return {
        kind: policy.requested[kind]
        - sum(max(0, (nodes.gpu, nodes.cpu, nodes.memory)[kind][i]) for i in usable)
        for kind in policy.kinds
    }


def _groups(selection: VictimSelection, usable: frozenset[int]) -> list[list[Victim]]:
    """Return the possible victims that free usable resources, by queue and size, cheapest first.

    Within a group it matters little where a victim runs, because the other pods can move.
    """
    index = selection.board.nodes.index
    groups: dict[tuple[object, ...], list[tuple[Key, Victim]]] = {}
    for victim in selection.candidates():
        key = selection.policy.key(victim)
        if key is not None and any(index[pod.node] in usable for _, pod in victim.pods):
            gang = victim.gang
            group = (gang.account.name, victim.amounts) if victim.whole else (gang.name, victim.pods[0][0])
            groups.setdefault(group, []).append((key, victim))
    ordered = sorted(
        (sorted(group, key=lambda entry: entry[0]) for group in groups.values()),
        key=lambda group: group[0][0],
    )
    return [[victim for _, victim in group] for group in ordered[:MAX_GROUPS]]
