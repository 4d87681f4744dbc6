"""Propose victims: node by node, cheapest first, then larger sets."""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from berth.core.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, amounts_of
from scheduler.engine.board.ledger import KINDS, QueueAccount
from scheduler.engine.placement.find_room import find_room, hardest_first, open_to
from scheduler.engine.placement.spots import Horizon, equal_spots
from scheduler.engine.preemption.bounds import biggest
from scheduler.engine.preemption.policy import PreemptionPolicy
from scheduler.engine.preemption.repack import place_repacked, smallest_first
from scheduler.engine.preemption.selection import VictimSelection
from scheduler.engine.preemption.victim_costs import Costs, OfferCache, full_cost
from scheduler.engine.preemption.victims import Victim

MOST_DOMAINS = 8  # domains for which the cost of clearing is computed
MOST_SINGLE_VICTIMS = 4  # single victims tried instead of several


def propose_by_node(
    selection: VictimSelection,
    arrangement: Arrangement,
    banned: Collection[int],
    offer_cache: OfferCache,
    inside: AbstractSet[int] | None = None,
) -> bool:
    """Place the arrangement, clearing the cheapest node for each replica.

    Until a node is cleared, every proposal for this arrangement sees the same board, so node costs are shared
    in `offer_cache`.
    """
    board, gang = selection.board, selection.policy.gang
    if not make_room_under_limits(selection, arrangement):
        return False
    within = open_to(board, gang, inside)
    closed = (
        banned
        if within is None or board.cycle.backfill_hold is None
        else board.cycle.backfill_hold.nodes.union(banned)
    )
    untouched = True
    for need in sorted(arrangement, key=hardest_first):
        costs: Costs | None = None
        indices = need.part.free_indices()
        spots = equal_spots(board, need.part, need.count, Horizon.LEAVING, within)
        for placed in range(need.count):
            spot = next(spots, None)
            if spot is None:
                costs = costs or Costs(selection, need.part, closed, offer_cache if untouched else None)
                spot, untouched = costs.clear_cheapest(), False
                left = need.count - placed - 1
                spots = equal_spots(board, need.part, left, Horizon.LEAVING, within)  # other nodes changed
            index = next(indices, None)
            if spot is None or index is None:
                return False
            board.put(gang, need.part, index, spot)
    return True


def propose_by_domain(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement
) -> list[tuple[AbstractSet[int], list[Victim]]]:
    """Return domains that could hold the whole arrangement, with the victims there, cheapest first."""
    selection, priced = VictimSelection(board, policy), []
    for number, domain in enumerate(_domains(board, policy, arrangement)):
        victims = _to_clear(board, policy, arrangement, domain)
        if victims:
            priced.append((full_cost(selection, victims), number, domain, victims))
    priced.sort(key=lambda entry: entry[:2])
    return [(domain, victims) for _, _, domain, victims in priced]


def _domains(board: Board, policy: PreemptionPolicy, arrangement: Arrangement) -> list[AbstractSet[int]]:
    """Return the domains in which the least capacity is missing."""
    scope = next(iter(arrangement[0].scopes), None)
    if (
        scope is None
        or scope.constraint.required is None
        or any(need.scopes[:1] != (scope,) for need in arrangement)
    ):
        return []
    standing = {board.nodes.index[pod.node] for part in scope.parts for pod in part.live.values()}
    requested, nodes = amounts_of(arrangement), board.nodes
    result: list[tuple[int, int, AbstractSet[int]]] = []
    for domain in board.topology.domains(scope.constraint.required).values():
        inside = open_to(board, policy.gang, domain)
        if inside and standing <= domain and MILLI * sum(nodes.nodes[i].gpus for i in inside) >= requested[0]:
            result.append((requested[0] - sum(nodes.gpu[i] for i in inside), len(result), inside))
    result.sort(key=lambda entry: entry[:2])
    return [inside for _, _, inside in result[:MOST_DOMAINS]]


def _to_clear(
    board: Board, policy: PreemptionPolicy, arrangement: Arrangement, domain: AbstractSet[int]
) -> list[Victim]:
    start, selection = board.mark(), VictimSelection(board, policy)
    result = propose_by_node(selection, arrangement, board.topology.everywhere - domain, OfferCache(), domain)
    victims = list(selection.selected) if result else []
    board.rewind(start)
    return victims


def single_victim_may_suffice(
    selection: VictimSelection, arrangement: Arrangement, free: Sequence[int]
) -> bool:
    """Return whether evicting one gang might make room for several replicas."""
    policy, requested = selection.policy, amounts_of(arrangement)
    if policy.moves_only or not policy.takes_gangs or sum(need.count for need in arrangement) < 2:
        return False
    return all(biggest(selection, kind) >= requested[kind] - free[kind] for kind in policy.kinds)


def cheaper_single_victims(
    selection: VictimSelection, arrangement: Arrangement, free: Sequence[int], stopped: Sequence[Victim]
) -> list[Victim]:
    """Return single gangs that free enough and cost less than the `stopped` victims, cheapest first.

    Clearing nodes replica by replica cannot see that one larger gang makes room for several replicas.
    """
    policy, requested = selection.policy, amounts_of(arrangement)
    missing = [requested[kind] - free[kind] for kind in policy.kinds]
    priced = []
    for account in policy.projects():
        for gang in selection.board.by_project[account].values():
            if all(_held(gang, kind) >= lack for kind, lack in zip(policy.kinds, missing, strict=True)):
                priced += [
                    (full_cost(selection, (victim,)), victim)
                    for victim in selection.victims_of(gang)
                    if victim.whole and policy.rule(victim) is not None
                ]
    if not priced:
        return []
    most = full_cost(selection, stopped)
    priced.sort(key=lambda entry: entry[0])
    return [victim for cost, victim in priced[:MOST_SINGLE_VICTIMS] if cost < most]


def _held(gang: Gang, kind: int) -> int:
    return sum(part.amounts[kind] * len(part.live) for part in gang.parts)


def make_room_under_limits(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Evict below each limit that the preemptor would exceed. Return whether that suffices."""
    requested = amounts_of(arrangement)
    for account in selection.policy.gang.account.path:
        while not _under(selection, account, requested):
            ordered = selection.ordered(_below(selection, account))
            if not any(selection.take(victim) for victim in ordered[:1]):
                return False
    return True


def _under(selection: VictimSelection, account: QueueAccount, requested: Sequence[int]) -> bool:
    ceiling = selection.policy.ceiling(account)
    return all(not requested[k] or account.allocated[k] + requested[k] <= ceiling[k] for k in KINDS)


def _below(selection: VictimSelection, account: QueueAccount) -> Iterator[Victim]:
    return (victim for victim in selection.candidates() if account in victim.gang.account.path)


def propose_by_prefix(selection: VictimSelection, arrangement: Arrangement) -> Iterator[None]:
    """Take 1, 2, 4, ... victims in order. Yield whenever the preemptor fits."""
    board, gang = selection.board, selection.policy.gang
    if not make_room_under_limits(selection, arrangement):
        return
    goal, more = 1, True
    ordered_victims = (
        None
        if board.elastic or not selection.policy.moves_only
        else iter(selection.ordered(selection.candidates()))
    )
    while more:
        more = (
            _take_up_to(selection, goal)
            if ordered_victims is None
            else _take_along(selection, goal, ordered_victims)
        )
        start = board.mark()
        if find_room(board, gang, arrangement, Horizon.LEAVING):
            yield
            board.rewind(start)
        goal *= 2
    if selection.policy.moves_only and place_repacked(selection, arrangement):
        selection.selected.sort(key=smallest_first)  # victims are put back in reverse order
        yield


def _take_up_to(selection: VictimSelection, goal: int) -> bool:
    """Select victims until `goal` of them are selected. Return False if there are too few."""
    while len(selection.selected) < goal:
        before = len(selection.selected)
        for victim in selection.ordered(selection.candidates()):
            if len(selection.selected) >= goal:
                break
            selection.take(victim)
        if len(selection.selected) == before:
            return False
    return True


def _take_along(selection: VictimSelection, goal: int, ordered_victims: Iterator[Victim]) -> bool:
    """Like `_take_up_to`, where selected victims do not change the order of the others."""
    while len(selection.selected) < goal:
        victim = next(ordered_victims, None)
        if victim is None:
            return False
        selection.take(victim)
    return True
