"""Count the pending work within limits that more nodes would serve, as input for an autoscaler."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import sub

from berth.core.amounts import MILLI, Amounts
from scheduler.engine.actions.overcommit import by_requests, may_overcommit
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import pending
from scheduler.engine.board.gang import BoardRole, Gang, PendingGroup, ReplicaRequest, arrangements
from scheduler.engine.board.ledger import GPU, KINDS, NO_BOUND, QueueAccount
from scheduler.engine.board.order import PendingOrder, in_project
from scheduler.engine.explain.growth_demand import Unplaced, could_grow, grow_on_paper, most_growth
from scheduler.engine.explain.new_nodes import could_add, fresh_nodes
from scheduler.engine.placement.find_room import place, place_most
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Demand, Load, Reason, UnmetShape

ABOUT_CAPACITY = {Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY}

Sums = dict[QueueAccount, list[int]]
Full = set[tuple[Hashable, str]]  # requests and roles for which no node has room left


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """The first `count` gangs of a group that wait for capacity, without the excluded gangs."""

    group: PendingGroup
    first: Gang
    excluded: Collection[str]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Gang]:
        waiting = islice(self.group.gangs, self.group.at, None)
        return islice((gang for gang in waiting if gang.name not in self.excluded), self.count)


def unmet(board: Board, waiting: Sequence[GroupDemand]) -> tuple[Demand, list[Gang]]:
    """Return the pool's unmet demand, and the pending gangs that the additional nodes would serve."""
    shapes: list[UnmetShape] = []
    loads: list[Load] = []
    for same in waiting:
        first, workloads = same.first, same.count
        for need in next(arrangements(first)):
            shapes.append(_shape(first, need.part, need.count, workloads, gang=True))
            loads.append(_load(first, need.part, need.count * workloads))
    nodes = _NewNodes(board, waiting, sum(shape.replicas * shape.workloads for shape in shapes))
    growth = Counter((grown.gang, grown.part) for grown in nodes.growth for _ in range(grown.replicas))
    for (gang, part), count in growth.items():
        shapes.append(_shape(gang, part, count, 1, gang=False))
        loads.append(_load(gang, part, count))
    queued = Load(*map(sum, zip(*loads, strict=True)))
    return Demand(board.pool.name, queued, _standing(board), nodes.used, tuple(shapes)), nodes.served


def _shape(first: Gang, part: BoardRole, replicas: int, workloads: int, *, gang: bool) -> UnmetShape:
    amounts, devices = Amounts(*part.amounts), part.request.devices
    return UnmetShape(first.name, part.role.name, workloads, replicas, amounts, devices, gang)


def _load(gang: Gang, part: BoardRole, count: int) -> Load:
    """Return the load of replicas on nodes: by requests if the gang may be overcommitted, else by limits."""
    request, gpu = part.request, part.amounts[GPU]
    if may_overcommit(gang):
        return Load(gpu * count, request.cpu * count, request.memory_mib * count, count)
    return Load(gpu * count, request.limit_cpu * count, request.limit_memory_mib * count, count)


def _standing(board: Board) -> Load:
    nodes = board.nodes
    if "whole" not in nodes.lasting:
        nodes.lasting["whole"] = Load(
            sum([node.gpus * MILLI for node in nodes.nodes]),
            sum([node.cpu * nodes.cpu_load_limit // MILLI for node in nodes.nodes]),
            sum([node.memory_mib for node in nodes.nodes]),
            sum([node.max_pods for node in nodes.nodes]),
        )
    whole: Load = nodes.lasting["whole"]
    free = (sum(nodes.gpu), sum(nodes.cpu), sum(nodes.memory), sum(nodes.pods))
    return Load(*map(sub, whole, free))


def allowed(board: Board, passed_on: Collection[str]) -> list[GroupDemand]:
    """Return the gangs that wait for capacity and that bounds allow together, by group and in queue order.

    `passed_on` names workloads that are counted in a preferred pool.
    """
    held: Sums = {}
    non_preemptible: Sums = {}
    counts: list[GroupDemand] = []
    excluded = board.served | board.cycle.evicted | set(passed_on)
    order = PendingOrder(board, [group for group in pending(board) if ABOUT_CAPACITY & group.reasons.keys()])
    fewer = _fewer(board, excluded)
    for group, first in order:
        order.leave(group)
        sums = list(_bounded(first, held, non_preemptible))
        fits = len(group.gangs) - group.at - fewer[group]
        for now, bound in sums:
            fits = min(fits, _times(now, bound, first.requested))
        for now, _ in sums:
            for kind in KINDS:
                now[kind] += first.requested[kind] * fits
        if fits:
            demand = GroupDemand(group, first, excluded, fits)
            counts.append(replace(demand, first=next(iter(demand))) if first.name in excluded else demand)
    return counts


def _bounded(gang: Gang, held: Sums, non_preemptible: Sums) -> Iterator[tuple[list[int], Sequence[int]]]:
    """Yield the amounts counted so far in each bounded queue of the gang, with the bound."""
    for account in gang.account.path:
        if account.has_limit:
            yield held.setdefault(account, list(account.allocated)), account.limit
        if gang.non_preemptible:
            yield non_preemptible.setdefault(account, list(account.non_preemptible)), account.quota


def _fewer(board: Board, excluded: Collection[str]) -> Counter[PendingGroup]:
    """Return the number of excluded gangs in each group, from its first pending gang on."""
    counts: Counter[PendingGroup] = Counter()
    for name in excluded:
        gang = board.gangs.get(name)
        if gang is not None and gang.group is not None and _is_ahead(gang, gang.group):
            counts[gang.group] += 1
    return counts


def _is_ahead(gang: Gang, group: PendingGroup) -> bool:
    return group.at < len(group.gangs) and in_project(group.gangs[group.at]) <= in_project(gang)


def _times(held: Sequence[int], bound: Sequence[int], requested: Sequence[int]) -> int:
    """Return the number of times that the request fits under the bound."""
    return max(
        0, min([(bound[k] - held[k]) // requested[k] for k in KINDS if requested[k]], default=NO_BOUND)
    )


class _NewNodes:
    """Simulates new nodes: pending gangs first, then growth of running gangs.

    Booting nodes are filled before new nodes. A gang that does not fit requests no node.
    """

    def __init__(self, board: Board, waiting: Sequence[GroupDemand], replicas: int) -> None:
        self.used = 0
        self.served: list[Gang] = []
        self.growth: list[Unplaced] = []
        more = could_add(board)
        growing = could_grow(board) if more or any(board.nodes.booting) else []
        count = min(more, replicas + most_growth(growing))
        if not count and not growing:
            return
        fresh = Board(board.pool, board.now, fresh_nodes(board, count), board.queues, set())
        start = board.mark()
        on_fresh = self._serve(board, fresh, waiting) if count else []
        if growing:
            self.growth = grow_on_paper(board, fresh, growing, on_fresh)
        board.rewind(start)
        self.used = sum(fresh.nodes.pods[i] < node.max_pods for i, node in enumerate(fresh.nodes.nodes))

    def _serve(self, board: Board, fresh: Board, waiting: Sequence[GroupDemand]) -> list[Unplaced]:
        """Place pending gangs and return their replicas on new nodes."""
        refused: set[Hashable] = set()
        full, on_fresh = Full(), list[Unplaced]()
        for same in waiting:
            for gang in () if same.group.request_key in refused else same:
                placed = _fill(board, fresh, gang, full)
                if placed is None:
                    refused.add(same.group.request_key)  # gangs with the same request will not fit either
                    break
                self.served.append(gang)
                on_fresh += placed
        return on_fresh


def _fill(board: Board, fresh: Board, gang: Gang, full: Full) -> list[Unplaced] | None:
    """Place the whole gang and return its replicas on new nodes.

    If that fails, return None and leave both boards unchanged. A gang without GPUs whose limits fit nowhere
    may start by its requests, so the gang is then placed by its requests.
    """
    before, before_fresh = board.mark(), fresh.mark()
    twin = fresh.add(gang.workload, 0, ())
    placed = _filled(board, fresh, gang, twin, full)
    if placed is None and may_overcommit(gang):
        board.rewind(before)
        fresh.rewind(before_fresh)
        with by_requests(gang, twin):
            placed = _filled(board, fresh, gang, twin, Full())
    if placed is None:
        board.rewind(before)
        fresh.rewind(before_fresh)
    return placed


def _filled(board: Board, fresh: Board, gang: Gang, twin: Gang, full: Full) -> list[Unplaced] | None:
    request_key = None if gang.group is None else gang.group.request_key
    on_fresh: list[Unplaced] = []
    for need in next(arrangements(gang)):
        name, left = need.part.role.name, need.count
        if (request_key, name) not in full:
            left -= place_most(board, gang, ReplicaRequest(need.part, left), Horizon.BOOTING, None)
            if left and need.part.on is None:  # spread replicas leave room for other gangs
                full.add((request_key, name))
        if left:
            if not place(fresh, twin, ReplicaRequest(twin.part(name), left), Horizon.NOW, None):
                return None
            on_fresh.append(Unplaced(gang, need.part, left))
    return on_fresh
