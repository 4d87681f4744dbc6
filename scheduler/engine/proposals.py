"""Here we propose whom to take from: node by node, the cheapest first, then more and more of everybody."""

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush

from berth.core.amounts import MILLI
from scheduler.engine.board import Board
from scheduler.engine.gang import Part, Way, amounts_of
from scheduler.engine.laws import Key
from scheduler.engine.ledger import KINDS, Account
from scheduler.engine.lumps import Lump
from scheduler.engine.model import Strategy
from scheduler.engine.nodes import Spot
from scheduler.engine.placement import find_room, hardest_first
from scheduler.engine.spots import Horizon, on_node, pick, takes
from scheduler.engine.taking import Taker

Cost = tuple[Key, int]  # what clearing a node for one replica costs, and the node


def by_nodes(taker: Taker, way: Way, banned: Collection[int]) -> bool:
    """Put the way on the board, clearing for each replica the node that costs least."""
    board, gang = taker.board, taker.law.gang
    if not relieve(taker, way):
        return False
    for want in sorted(way, key=hardest_first):
        costs: list[Cost] | None = None
        for _ in range(want.count):
            spot = pick(board, want.part, Horizon.LEAVING)
            if spot is None:
                costs = _costs(taker, want.part, banned) if costs is None else costs
                spot = _clear_cheapest(taker, want.part, costs)
            index = next(want.part.free_indices(), None)
            if spot is None or index is None:
                return False
            board.put(gang, want.part, index, spot)
    return True


def relieve(taker: Taker, way: Way) -> bool:
    """Where a limit on the newcomer's path would be passed, take below that limit first."""
    asked = amounts_of(way)
    for account in taker.law.gang.account.path:
        while not _under_cap(account, asked):
            ordered = taker.ordered(_below(taker, account))
            if not any(taker.take(lump) for lump in ordered[:1]):
                return False
    return True


def _under_cap(account: Account, asked: Sequence[int]) -> bool:
    return all(not asked[k] or account.allocated[k] + asked[k] <= account.cap[k] for k in KINDS)


def _below(taker: Taker, account: Account) -> Iterator[Lump]:
    return (lump for lump in taker.everything() if account in lump.gang.account.path)


def _costs(taker: Taker, part: Part, banned: Collection[int]) -> list[Cost]:
    nodes = taker.board.nodes
    costs = []
    for i, ready in enumerate(nodes.ready):
        if ready and i not in banned and (part.mask is None or part.mask[i]):
            found = cheapest_on(taker, part, i)
            if found is not None:
                costs.append((found[0], i))
    heapify(costs)
    return costs


def _clear_cheapest(taker: Taker, part: Part, costs: list[Cost]) -> Spot | None:
    board = taker.board
    while costs:
        cost, i = heappop(costs)
        found = cheapest_on(taker, part, i)
        if found is None:
            continue
        if found[0] > cost and costs and (found[0], i) > costs[0]:
            heappush(costs, (found[0], i))  # it has become dearer meanwhile
            continue
        start, count = board.mark(), len(taker.taken)
        if all(taker.take(lump) for lump in found[1]):
            spot = on_node(board.nodes, i, part, Horizon.LEAVING, _spread(board))
            if spot is not None and takes(board.nodes, i, part, Horizon.LEAVING):
                heappush(costs, (found[0], i))
                return spot
        board.rewind(start)
        taker.forget(count)
    return None


def _spread(board: Board) -> bool:
    return board.pool.device_strategy is Strategy.SPREAD


def cheapest_on(taker: Taker, part: Part, i: int) -> tuple[Key, list[Lump]] | None:
    """The cheapest lumps whose going makes this node hold one more replica, and their cost."""
    room = _Room(taker.board, part, i)
    ordered = [lump for lump in taker.ordered(taker.lumps_on(i)) if room.gains(lump)]
    sets: list[list[Lump]] = []
    alone = next((lump for lump in ordered if room.suffices([lump])), None)
    if alone is not None:
        sets.append([alone])
    chosen: list[Lump] = []
    for lump in ordered:
        if not _clash(lump, chosen):
            chosen.append(lump)
            if room.suffices(chosen):
                sets.append(_pruned(room, chosen))
                break
    if not sets:
        return None
    return min((((*taker.law.cost(lumps), i), lumps) for lumps in sets), key=lambda entry: entry[0])


def _clash(lump: Lump, chosen: Sequence[Lump]) -> bool:
    """A gang is taken once; of growth, no more than it can spare."""
    same = [other for other in chosen if other.gang is lump.gang]
    if not same:
        return False
    if lump.whole or any(other.whole for other in same):
        return True
    part = lump.pods[0][0]
    return sum(other.pods[0][0] is part for other in same) >= part.count - part.role.min


def _pruned(room: "_Room", chosen: list[Lump]) -> list[Lump]:
    for lump in tuple(reversed(chosen)):
        rest = [other for other in chosen if other is not lump]
        if rest and room.suffices(rest):
            chosen = rest
    return chosen


class _Room:
    """What one node would have free if some lumps went, for one kind of replica."""

    def __init__(self, board: Board, part: Part, i: int) -> None:
        self.i, self.part, self.nodes = i, part, board.nodes
        self.node = board.nodes.nodes[i].name
        self.milli = board.nodes.milli_on(i, part.request)
        self.has_devices = len(board.nodes.devices[i]) >= part.request.devices and self.milli <= MILLI

    def gains(self, lump: Lump) -> bool:
        """Whether it frees anything here that a replica asks for."""
        request = self.part.request
        for part, pod in lump.pods:
            if pod.node == self.node:
                asked = part.request
                if (pod.devices and request.devices) or (asked.limit_cpu and request.limit_cpu):
                    return True
                if (asked.limit_memory_mib and request.limit_memory_mib) or self.nodes.pods[self.i] < 1:
                    return True
        return False

    def suffices(self, lumps: Sequence[Lump]) -> bool:
        nodes, i, request = self.nodes, self.i, self.part.request
        if not self.has_devices:
            return False
        cpu, memory, pods = nodes.cpu[i], nodes.memory[i], nodes.pods[i]
        freed: dict[int, int] = {}
        for lump in lumps:
            for part, pod in lump.pods:
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
        free = nodes.devices[i]
        usable = sum(milli + freed.get(d, 0) >= self.milli for d, milli in enumerate(free))
        return usable >= request.devices


def by_prefix(taker: Taker, way: Way) -> Iterator[None]:
    """Take 1, 2, 4, ... lumps in their order; a step is offered whenever the newcomer then fits."""
    board, gang = taker.board, taker.law.gang
    if not relieve(taker, way):
        return
    goal, more = 1, True
    while more:
        more = _take_up_to(taker, goal)
        start = board.mark()
        if find_room(board, gang, way, Horizon.LEAVING):
            yield
            board.rewind(start)
        goal *= 2


def _take_up_to(taker: Taker, goal: int) -> bool:
    """Whether there was so much to take."""
    while len(taker.taken) < goal:
        before = len(taker.taken)
        for lump in taker.ordered(taker.everything()):
            if len(taker.taken) < goal:
                taker.take(lump)
        if len(taker.taken) == before:
            return False
    return True
