"""Propose victims node by node, cheapest first, then in larger sets."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, smallest_request, total_request
from scheduler.engine.board.ledger import KINDS, QueueAccount
from scheduler.engine.placement.find_room import available_nodes, difficulty_key, place_arrangement
from scheduler.engine.placement.slots import UsableCapacity, interchangeable_slots
from scheduler.engine.preemption.bounds import largest_victim
from scheduler.engine.preemption.exact_repack import place_exactly
from scheduler.engine.preemption.outcome import reapply_moves
from scheduler.engine.preemption.policies.base import PreemptionPolicy
from scheduler.engine.preemption.repack import place_repacked, size_sort_key
from scheduler.engine.preemption.victims.costs import NodeCostCache, NodeCosts, victims_sort_key
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.sets import select_all, sufficient_victim_sets, victim_set_cost
from scheduler.engine.preemption.victims.units import Victim

MAX_DOMAINS = 8  # maximum number of domains whose clearing cost is computed
MAX_SETS = 4  # number of victim sets tried before the set that clears the cheapest nodes
MAX_PRICED_VICTIMS = 400  # maximum number of victims priced, summed over all sets
# Maximum numbers of victims and candidates. Above either number, only single victims are tried.
MAX_COMPARED_VICTIMS = 8
MAX_COMPARED_CANDIDATES = 256


class ProposalBudget:
    """Number of proposals that may still be tried."""

    def __init__(self, total: int) -> None:
        self.total = self.left = total

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def reset(self) -> "ProposalBudget":
        self.left = self.total
        return self


def propose_victims(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, budget: ProposalBudget
) -> Iterator[VictimSelection]:
    """Yield victim selections.

    The board shows the effects of the selection that was yielded last, and is restored at the end.
    """
    start, banned, cost_cache = board.log_position(), set[int](), NodeCostCache()
    if not any(need.scopes for need in arrangement):
        replicas = sum(need.count for need in arrangement)
        alternatives = _CheaperAlternatives(board, policy, arrangement)
        while budget.spend() and board.cycle.placement_attempts.use_attempt(policy.gang, replicas):
            board.begin_attempt()
            selection = VictimSelection(board, policy)
            if not _place_by_clearing_nodes(selection, arrangement, banned, cost_cache):
                board.rewind(start)
                break
            stopped = [] if banned or policy.moves_only else list(selection.selected)
            if alternatives.may_exist(stopped):
                moves = board.moves_since(start)
                board.rewind(start)
                yield from _placeable_selections(
                    board, policy, arrangement, alternatives.cheaper_than(stopped)
                )
                reapply_moves(board, moves)
            yield selection
            cleared = {board.nodes.index[pod.node] for victim in selection.selected for _, pod in victim.pods}
            board.rewind(start)
            if not cleared - banned:
                break
            banned.add(min(cleared - banned))
    else:
        for domain, victims in _victims_by_domain(board, policy, arrangement):
            if not budget.spend():
                break
            board.begin_attempt()
            selection = VictimSelection(board, policy)
            all_selected = all(selection.select(victim) for victim in victims)
            if all_selected and place_arrangement(
                board, policy.gang, arrangement, UsableCapacity.LEAVING, domain
            ):
                yield selection
            board.rewind(start)
    selection = VictimSelection(board, policy)
    for _ in _propose_by_prefix(selection, arrangement):
        if not budget.spend():
            break
        board.begin_attempt()
        yield selection
    board.rewind(start)


def _placeable_selections(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, sets: Iterable[Sequence[Victim]]
) -> Iterator[VictimSelection]:
    start = board.log_position()
    for victims in sets:
        board.begin_attempt()
        selection = VictimSelection(board, policy)
        if (
            select_all(selection, victims)
            and make_room_under_limits(selection, arrangement)
            and place_arrangement(board, policy.gang, arrangement, UsableCapacity.LEAVING)
        ):
            yield selection
        board.rewind(start)


def _place_by_clearing_nodes(
    selection: VictimSelection,
    arrangement: Arrangement,
    banned: Collection[int],
    cost_cache: NodeCostCache,
    inside: AbstractSet[int] | None = None,
) -> bool:
    """Place the arrangement, clearing the cheapest node for each replica that does not fit.

    Return False if the arrangement cannot be placed.
    """
    board, gang = selection.board, selection.policy.gang
    if not make_room_under_limits(selection, arrangement):
        return False
    within = available_nodes(board, gang, inside)
    hold = board.cycle.held_nodes()
    closed = banned if within is None or hold is None else hold.nodes.union(banned)
    untouched = True
    for need in sorted(arrangement, key=difficulty_key):
        costs: NodeCosts | None = None
        indices = need.part.free_indices()
        slots = interchangeable_slots(board, need.part, need.count, UsableCapacity.LEAVING, within)
        for placed in range(need.count):
            slot = next(slots, None)
            if slot is None:
                costs = costs or NodeCosts(selection, need.part, closed, cost_cache if untouched else None)
                slot, untouched = costs.clear_cheapest_node(), False
                left = need.count - placed - 1
                # Search again, because nodes have changed.
                slots = interchangeable_slots(board, need.part, left, UsableCapacity.LEAVING, within)
            index = next(indices, None)
            if slot is None or index is None:
                return False
            board.place_pod(gang, need.part, index, slot)
    return True


def _victims_by_domain(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement
) -> list[tuple[AbstractSet[int], list[Victim]]]:
    """Return the topology domains in which the arrangement might fit, cheapest first, with their victims."""
    selection, priced = VictimSelection(board, policy), []
    for number, domain in enumerate(_domains(board, policy, arrangement)):
        victims = _victims_to_clear(board, policy, arrangement, domain)
        if victims:
            priced.append((victims_sort_key(selection, victims), number, domain, victims))
    priced.sort(key=lambda entry: entry[:2])
    return [(domain, victims) for _, _, domain, victims in priced]


def _domains(board: Board, policy: PreemptionPolicy, arrangement: Arrangement) -> list[AbstractSet[int]]:
    """Return up to MAX_DOMAINS topology domains in which the arrangement might fit.

    Domains that lack the fewest GPUs come first.
    """
    scope = next(iter(arrangement[0].scopes), None)
    if (
        scope is None
        or scope.constraint.required is None
        or any(need.scopes[:1] != (scope,) for need in arrangement)
    ):
        return []
    occupied = {board.nodes.index[pod.node] for part in scope.parts for pod in part.live.values()}
    requested, nodes = smallest_request(arrangement), board.nodes
    result: list[tuple[int, int, AbstractSet[int]]] = []
    for domain in board.topology.domains(scope.constraint.required).values():
        inside = available_nodes(board, policy.gang, domain)
        if inside and occupied <= domain and MILLI * sum(nodes.nodes[i].gpus for i in inside) >= requested[0]:
            result.append((requested[0] - sum(nodes.gpu[i] for i in inside), len(result), inside))
    result.sort(key=lambda entry: entry[:2])
    return [inside for _, _, inside in result[:MAX_DOMAINS]]


def _victims_to_clear(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, domain: AbstractSet[int]
) -> list[Victim]:
    start, selection = board.log_position(), VictimSelection(board, policy)
    result = _place_by_clearing_nodes(
        selection, arrangement, board.topology.all_nodes - domain, NodeCostCache(), domain
    )
    victims = list(selection.selected) if result else []
    board.rewind(start)
    return victims


class _CheaperAlternatives:
    """Sets of victims that may cost less than clearing nodes one by one."""

    def __init__(self, board: Board, policy: PreemptionPolicy, arrangement: Arrangement) -> None:
        """Record the free resources. Must be called before any victim is selected."""
        self._board, self._policy, self._arrangement = board, policy, arrangement
        self._free = board.nodes.free_resources()
        candidates = sum(len(board.by_project[account]) for account in policy.projects())
        self._too_many_candidates = candidates > MAX_COMPARED_CANDIDATES
        self._single_may_suffice = _single_victim_may_suffice(
            VictimSelection(board, policy), arrangement, self._free
        )

    def _should_try_single_victims_only(self, stopped: Sequence[Victim]) -> bool:
        return self._too_many_candidates or len(stopped) > MAX_COMPARED_VICTIMS

    def may_exist(self, stopped: Sequence[Victim]) -> bool:
        """Return whether there may be a cheaper set of victims than `stopped`."""
        return sum(victim.is_gang for victim in stopped) > 1 and (
            self._single_may_suffice or not self._should_try_single_victims_only(stopped)
        )

    def cheaper_than(self, stopped: Sequence[Victim]) -> Sequence[Sequence[Victim]]:
        """Return sets of victims that cost less than `stopped` and free enough resources in total, cheapest
        first. Before the call, the victims in `stopped` must have been restored to the board.
        """
        policy, selection = self._policy, VictimSelection(self._board, self._policy)
        if self._should_try_single_victims_only(stopped):
            singles = _cheaper_single_victims(selection, self._arrangement, self._free, stopped)
            return [(victim,) for victim in singles]
        max_cost = victim_set_cost(policy, stopped)
        sets = sufficient_victim_sets(policy, self._arrangement, MAX_PRICED_VICTIMS, max_cost=max_cost)
        return [victims for _, victims in islice(sets, MAX_SETS)]


def _single_victim_may_suffice(
    selection: VictimSelection, arrangement: Arrangement, free: Sequence[int]
) -> bool:
    policy, requested = selection.policy, smallest_request(arrangement)
    if policy.moves_only or not policy.evicts_gangs or sum(need.count for need in arrangement) < 2:
        return False
    return all(largest_victim(selection, kind) >= requested[kind] - free[kind] for kind in policy.kinds)


def _cheaper_single_victims(
    selection: VictimSelection, arrangement: Arrangement, free: Sequence[int], stopped: Sequence[Victim]
) -> list[Victim]:
    """Return the gangs that cost less than `stopped` and would each free enough resources, cheapest first."""
    policy, requested = selection.policy, smallest_request(arrangement)
    missing = [requested[kind] - free[kind] for kind in policy.kinds]
    priced = []
    for account in policy.projects():
        for gang in selection.board.by_project[account].values():
            if all(
                _allocated_amount(gang, kind) >= amount
                for kind, amount in zip(policy.kinds, missing, strict=True)
            ):
                priced += [
                    (victims_sort_key(selection, (victim,)), victim)
                    for victim in selection.victims_in_gang(gang)
                    if victim.is_gang and policy.rule(victim) is not None
                ]
    if not priced:
        return []
    max_cost = victims_sort_key(selection, stopped)
    priced.sort(key=lambda entry: entry[0])
    return [victim for cost, victim in priced[:MAX_SETS] if cost < max_cost]


def _allocated_amount(gang: Gang, kind: int) -> int:
    return sum(part.amounts[kind] * len(part.live) for part in gang.parts)


def make_room_under_limits(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Evict victims from queues whose limit would be exceeded. Return whether all limits are now met."""
    requested = total_request(arrangement)
    for account in selection.policy.gang.account.path:
        while not _fits_under_limit(selection, account, requested):
            ordered = selection.sort_in_eviction_order(_victims_in_queue(selection, account))
            if not any(selection.select(victim) for victim in ordered[:1]):
                return False
    return True


def fits_under_limits(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Return whether the arrangement stays within all limits on the preemptor's path."""
    requested = total_request(arrangement)
    return all(
        _fits_under_limit(selection, account, requested) for account in selection.policy.gang.account.path
    )


def _fits_under_limit(selection: VictimSelection, account: QueueAccount, requested: Sequence[int]) -> bool:
    max_allocation = selection.policy.max_allocation(account)
    return all(not requested[k] or account.allocated[k] + requested[k] <= max_allocation[k] for k in KINDS)


def _victims_in_queue(selection: VictimSelection, account: QueueAccount) -> Iterator[Victim]:
    return (victim for victim in selection.victim_candidates() if account in victim.gang.account.path)


def _propose_by_prefix(selection: VictimSelection, arrangement: Arrangement) -> Iterator[None]:
    """Select 1, 2, 4, ... victims in order. Yield whenever the preemptor fits."""
    board, gang = selection.board, selection.policy.gang
    if not make_room_under_limits(selection, arrangement):
        return
    goal, more = 1, True
    ordered_victims = (
        None
        if board.elastic_gangs or not selection.policy.moves_only
        else iter(selection.sort_in_eviction_order(selection.victim_candidates()))
    )
    while more:
        more = (
            _select_first_victims(selection, goal)
            if ordered_victims is None
            else _select_in_order(selection, goal, ordered_victims)
        )
        start = board.log_position()
        if place_arrangement(board, gang, arrangement, UsableCapacity.LEAVING):
            yield
            board.rewind(start)
        goal *= 2
    if not selection.policy.moves_only:
        return
    start = board.log_position()
    if place_repacked(selection, arrangement):
        selection.selected.sort(key=size_sort_key)  # victims are restored in reverse order
        yield
        board.rewind(start)
    if place_exactly(selection, arrangement):
        yield


def _select_first_victims(selection: VictimSelection, goal: int) -> bool:
    """Select victims in eviction order until `goal` victims are selected.

    Return False if there are too few.
    """
    while len(selection.selected) < goal:
        before = len(selection.selected)
        for victim in selection.sort_in_eviction_order(selection.victim_candidates()):
            if len(selection.selected) >= goal:
                break
            selection.select(victim)
        if len(selection.selected) == before:
            return False
    return True


def _select_in_order(selection: VictimSelection, goal: int, ordered_victims: Iterator[Victim]) -> bool:
    """Select victims in the given order until `goal` victims are selected.

    Return False if there are too few.
    """
    while len(selection.selected) < goal:
        victim = next(ordered_victims, None)
        if victim is None:
            return False
        selection.select(victim)
    return True
