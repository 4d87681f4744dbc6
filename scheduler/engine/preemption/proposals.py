"""Propose victims: node by node, cheapest first, then larger sets."""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet

from berth.core.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Way, amounts_of
from scheduler.engine.board.ledger import KINDS, Account
from scheduler.engine.placement.find_room import find_room, hardest_first, open_to
from scheduler.engine.placement.spots import Horizon, equal_spots
from scheduler.engine.preemption.bounds import biggest
from scheduler.engine.preemption.policy import Law
from scheduler.engine.preemption.repack import place_as_packed, smallest_first
from scheduler.engine.preemption.selection import Taker
from scheduler.engine.preemption.victim_costs import Costs, Known, full_cost
from scheduler.engine.preemption.victims import Lump

MOST_DOMAINS = 8  # of which it is found out what clearing them costs
MOST_ALONE = 4  # who are looked at instead of several


def by_nodes(
    taker: Taker,
    way: Way,
    banned: Collection[int],
    known: Known,
    inside: AbstractSet[int] | None = None,
) -> bool:
    """Put the way on the board, clearing for each replica the node that costs least.

    Until a node is cleared, every proposal for this way finds the board as the first did: what that one found
    of nodes is `known` to the others.
    """
    board, gang = taker.board, taker.law.gang
    if not relieve(taker, way):
        return False
    within = open_to(board, gang, inside)
    closed = banned if within is None or board.kept is None else board.kept.nodes.union(banned)
    untouched = True
    for want in sorted(way, key=hardest_first):
        costs: Costs | None = None
        indices = want.part.free_indices()
        spots = equal_spots(board, want.part, want.count, Horizon.LEAVING, within)
        for placed in range(want.count):
            spot = next(spots, None)
            if spot is None:
                costs = costs or Costs(taker, want.part, closed, known if untouched else None)
                spot, untouched = costs.clear_cheapest(), False
                left = want.count - placed - 1
                spots = equal_spots(board, want.part, left, Horizon.LEAVING, within)  # other nodes changed
            index = next(indices, None)
            if spot is None or index is None:
                return False
            board.put(gang, want.part, index, spot)
    return True


def by_domains(board: Board, law: Law, way: Way) -> list[tuple[AbstractSet[int], list[Lump]]]:
    """Domains in which all of it could stand together, and who would go there, the cheapest first."""
    taker, priced = Taker(board, law), []
    for number, domain in enumerate(_domains(board, law, way)):
        lumps = _to_clear(board, law, way, domain)
        if lumps:
            priced.append((full_cost(taker, lumps), number, domain, lumps))
    priced.sort(key=lambda entry: entry[:2])
    return [(domain, lumps) for _, _, domain, lumps in priced]


def _domains(board: Board, law: Law, way: Way) -> list[AbstractSet[int]]:
    """Those in which the least is missing."""
    scope = next(iter(way[0].scopes), None)
    if scope is None or scope.constraint.required is None or any(want.scopes[:1] != (scope,) for want in way):
        return []
    standing = {board.nodes.index[pod.node] for part in scope.parts for pod in part.live.values()}
    asked, nodes = amounts_of(way), board.nodes
    found: list[tuple[int, int, AbstractSet[int]]] = []
    for domain in board.topology.domains(scope.constraint.required).values():
        inside = open_to(board, law.gang, domain)
        if inside and standing <= domain and MILLI * sum(nodes.nodes[i].gpus for i in inside) >= asked[0]:
            found.append((asked[0] - sum(nodes.gpu[i] for i in inside), len(found), inside))
    found.sort(key=lambda entry: entry[:2])
    return [inside for _, _, inside in found[:MOST_DOMAINS]]


def _to_clear(board: Board, law: Law, way: Way, domain: AbstractSet[int]) -> list[Lump]:
    start, taker = board.mark(), Taker(board, law)
    found = by_nodes(taker, way, board.topology.everywhere - domain, Known(), domain)
    lumps = list(taker.taken) if found else []
    board.rewind(start)
    return lumps


def one_may_do(taker: Taker, way: Way, free: Sequence[int]) -> bool:
    """Whether anybody is large enough to make room for several replicas alone."""
    law, asked = taker.law, amounts_of(way)
    if law.moves_only or not law.takes_gangs or sum(want.count for want in way) < 2:
        return False
    return all(biggest(taker, kind) >= asked[kind] - free[kind] for kind in law.kinds)


def cheaper_alone(taker: Taker, way: Way, free: Sequence[int], stopped: Sequence[Lump]) -> list[Lump]:
    """Who would cost less than these, who stop together, and leaves room enough in sum; the cheapest first.

    Looking for room replica by replica does not see that one larger gang makes room for several.
    """
    law, asked = taker.law, amounts_of(way)
    missing = [asked[kind] - free[kind] for kind in law.kinds]
    priced = []
    for account in law.projects():
        for gang in taker.board.by_project[account].values():
            if all(_held(gang, kind) >= lack for kind, lack in zip(law.kinds, missing, strict=True)):
                priced += [
                    (full_cost(taker, (lump,)), lump)
                    for lump in taker.lumps_of(gang)
                    if lump.whole and law.rule(lump) is not None
                ]
    if not priced:
        return []
    most = full_cost(taker, stopped)
    priced.sort(key=lambda entry: entry[0])
    return [lump for cost, lump in priced[:MOST_ALONE] if cost < most]


def _held(gang: Gang, kind: int) -> int:
    return sum(part.amounts[kind] * len(part.live) for part in gang.parts)


def relieve(taker: Taker, way: Way) -> bool:
    """Where a limit on the newcomer's path would be passed, take below that limit first."""
    asked = amounts_of(way)
    for account in taker.law.gang.account.path:
        while not _under(taker, account, asked):
            ordered = taker.ordered(_below(taker, account))
            if not any(taker.take(lump) for lump in ordered[:1]):
                return False
    return True


def _under(taker: Taker, account: Account, asked: Sequence[int]) -> bool:
    ceiling = taker.law.ceiling(account)
    return all(not asked[k] or account.allocated[k] + asked[k] <= ceiling[k] for k in KINDS)


def _below(taker: Taker, account: Account) -> Iterator[Lump]:
    return (lump for lump in taker.everything() if account in lump.gang.account.path)


def by_prefix(taker: Taker, way: Way) -> Iterator[None]:
    """Take 1, 2, 4, ... lumps in their order; a step is offered whenever the newcomer then fits."""
    board, gang = taker.board, taker.law.gang
    if not relieve(taker, way):
        return
    goal, more = 1, True
    line = None if board.elastic or not taker.law.moves_only else iter(taker.ordered(taker.everything()))
    while more:
        more = _take_up_to(taker, goal) if line is None else _take_along(taker, goal, line)
        start = board.mark()
        if find_room(board, gang, way, Horizon.LEAVING):
            yield
            board.rewind(start)
        goal *= 2
    if taker.law.moves_only and place_as_packed(taker, way):
        taker.taken.sort(key=smallest_first)  # the last of them is put back first
        yield


def _take_up_to(taker: Taker, goal: int) -> bool:
    """Whether there was so much to take."""
    while len(taker.taken) < goal:
        before = len(taker.taken)
        for lump in taker.ordered(taker.everything()):
            if len(taker.taken) >= goal:
                break
            taker.take(lump)
        if len(taker.taken) == before:
            return False
    return True


def _take_along(taker: Taker, goal: int, line: Iterator[Lump]) -> bool:
    """The same where what was taken changes nothing about those who are left."""
    while len(taker.taken) < goal:
        lump = next(line, None)
        if lump is None:
            return False
        taker.take(lump)
    return True
