"""Compute the unmet demand for the autoscaler: requests within limits that would fit on additional nodes."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import add, sub

from berth.core.values.amounts import MILLI, Amounts
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import find_pending_groups
from scheduler.engine.board.gang import BoardRole, Gang, PendingGroup, ReplicaRequest, arrangements
from scheduler.engine.board.ledger import GPU, KINDS, NO_BOUND, QueueAccount, QueueGroup
from scheduler.engine.board.order import PendingOrder, gang_sort_key
from scheduler.engine.explain.new_nodes import addable_node_count, make_new_nodes
from scheduler.engine.explain.scale_up_demand import (
    UnplacedReplicas,
    gangs_to_scale_up,
    max_scale_up,
    simulate_scale_up,
)
from scheduler.engine.placement.find_room import place_as_many_as_fit, place_replicas
from scheduler.engine.placement.overcommit import ignoring_limits, may_overcommit
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.plan import Demand, Load, Reason, UnmetShape

NOTHING = (0, 0, 0)
CAPACITY_REASONS = {Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY}

Sums = dict[QueueAccount, list[int]]
GroupSums = dict[QueueGroup, list[int]]  # demand in other pools that counts against the same group quota
FullRoles = set[tuple[Hashable, str]]  # requests and role names that no node has room for


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """Unmet demand of a pending group: the first `count` pending gangs that are not in `excluded`."""

    group: PendingGroup
    first: Gang
    excluded: Collection[str]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Gang]:
        pending = islice(self.group.gangs, self.group.at, None)
        return islice((gang for gang in pending if gang.name not in self.excluded), self.count)


def unmet_demand(board: Board, group_demands: Sequence[GroupDemand]) -> tuple[Demand, list[Gang]]:
    """Return the pool's unmet demand, and the pending gangs that could start on additional nodes."""
    shapes: list[UnmetShape] = []
    loads: list[Load] = []
    for group_demand in group_demands:
        first, workloads = group_demand.first, group_demand.count
        for need in next(arrangements(first)):
            shapes.append(_build_unmet_shape(first, need.part, need.count, workloads, gang=True))
            loads.append(_replica_load(first, need.part, need.count * workloads))
    nodes = _NewNodeSimulation(
        board, group_demands, sum(shape.replicas * shape.workloads for shape in shapes)
    )
    extra = Counter((added.gang, added.part) for added in nodes.scale_ups for _ in range(added.replicas))
    for (gang, part), count in extra.items():
        shapes.append(_build_unmet_shape(gang, part, count, 1, gang=False))
        loads.append(_replica_load(gang, part, count))
    queued = Load(*map(sum, zip(*loads, strict=True)))
    return Demand(board.pool.name, queued, _allocated_load(board), nodes.used, tuple(shapes)), nodes.served


def _build_unmet_shape(
    first: Gang, part: BoardRole, replicas: int, workloads: int, *, gang: bool
) -> UnmetShape:
    amounts, devices = Amounts(*part.amounts), part.request.devices
    return UnmetShape(first.name, part.role.name, workloads, replicas, amounts, devices, gang)


def _replica_load(gang: Gang, part: BoardRole, count: int) -> Load:
    """Return the amounts that `count` replicas take up on nodes: their requests if the gang may overcommit,
    otherwise their limits.
    """
    request, gpu = part.request, part.amounts[GPU]
    if may_overcommit(gang):
        return Load(gpu * count, request.cpu * count, request.memory_mib * count, count)
    return Load(gpu * count, request.limit_cpu * count, request.limit_memory_mib * count, count)


def _allocated_load(board: Board) -> Load:
    nodes = board.nodes
    if "total load" not in nodes.static_cache:
        nodes.static_cache["total load"] = Load(
            sum([node.gpus * MILLI for node in nodes.nodes]),
            sum([node.cpu * nodes.cpu_load_limit // MILLI for node in nodes.nodes]),
            sum([node.memory_mib for node in nodes.nodes]),
            sum([node.max_pods for node in nodes.nodes]),
        )
    total: Load = nodes.static_cache["total load"]
    free = (sum(nodes.gpu), sum(nodes.cpu), sum(nodes.memory), sum(nodes.pods))
    return Load(*map(sub, total, free))


def demand_within_bounds(
    board: Board, counted_elsewhere: Collection[str], in_groups: GroupSums | None = None
) -> list[GroupDemand]:
    """Return the gangs that need capacity and together stay within limits and quotas, in queue order.

    Workloads in `counted_elsewhere` are skipped, because another pool counts their demand. The demand is
    added to the sums in `in_groups`.
    """
    counted = GroupSums() if in_groups is None else in_groups
    allocated: Sums = {}
    non_preemptible: Sums = {}
    counts: list[GroupDemand] = []
    served: list[tuple[Gang, int]] = []
    excluded = board.served | board.cycle.evicted | set(counted_elsewhere)
    order = PendingOrder(
        board, [group for group in find_pending_groups(board) if CAPACITY_REASONS & group.reasons.keys()]
    )
    excluded_counts = _count_excluded_gangs(board, excluded)
    for group, first in order:
        order.skip_group(group)
        sums = list(_amounts_and_bounds(first, allocated, non_preemptible, counted))
        fits = len(group.gangs) - group.at - excluded_counts[group]
        for now, bound in sums:
            fits = min(fits, _max_requests_within_bound(now, bound, first.requested))
        for now, _ in sums:
            for kind in KINDS:
                now[kind] += first.requested[kind] * fits
        if fits:
            served.append((first, fits))
            demand = GroupDemand(group, first, excluded, fits)
            counts.append(replace(demand, first=next(iter(demand))) if first.name in excluded else demand)
    _add_to_group_sums(served, counted)
    return counts


def _add_to_group_sums(served: Iterable[tuple[Gang, int]], counted: GroupSums) -> None:
    for gang, count in served:
        for account in gang.account.path:
            if account.group is not None:
                total = counted.setdefault(account.group, [0, 0, 0])
                for kind in KINDS:
                    total[kind] += gang.requested[kind] * count


def _amounts_and_bounds(
    gang: Gang, allocated: Sums, non_preemptible: Sums, counted: GroupSums
) -> Iterator[tuple[list[int], Sequence[int]]]:
    """For each limit and quota of the gang's queues, yield (amounts counted so far, limit or quota)."""
    for account in gang.account.path:
        other_pools = NOTHING if account.group is None else counted.get(account.group, NOTHING)
        if account.has_limit:
            if account not in allocated:
                allocated[account] = list(map(add, account.allocated, other_pools))
            yield allocated[account], account.limit
        if gang.non_preemptible:
            if account not in non_preemptible:
                non_preemptible[account] = list(map(add, account.non_preemptible, other_pools))
            yield non_preemptible[account], account.non_preemptible_quota


def _count_excluded_gangs(board: Board, excluded: Collection[str]) -> Counter[PendingGroup]:
    """Return how many gangs of each group are in `excluded`.

    Gangs before the group's first pending gang are not counted.
    """
    counts: Counter[PendingGroup] = Counter()
    for name in excluded:
        gang = board.gangs.get(name)
        if (
            gang is not None
            and gang.group is not None
            and _is_at_or_after_first_pending_gang(gang, gang.group)
        ):
            counts[gang.group] += 1
    return counts


def _is_at_or_after_first_pending_gang(gang: Gang, group: PendingGroup) -> bool:
    return group.at < len(group.gangs) and gang_sort_key(group.gangs[group.at]) <= gang_sort_key(gang)


def _max_requests_within_bound(counted: Sequence[int], bound: Sequence[int], requested: Sequence[int]) -> int:
    return max(
        0, min([(bound[k] - counted[k]) // requested[k] for k in KINDS if requested[k]], default=NO_BOUND)
    )


class _NewNodeSimulation:
    """Simulation of adding nodes.

    Pending gangs are placed first, then running elastic gangs are scaled up. Booting nodes are filled before
    new nodes.
    """

    def __init__(self, board: Board, group_demands: Sequence[GroupDemand], replicas: int) -> None:
        self.used = 0
        self.served: list[Gang] = []
        self.scale_ups: list[UnplacedReplicas] = []
        more = addable_node_count(board)
        elastic = gangs_to_scale_up(board) if more or any(board.nodes.booting) else []
        count = min(more, replicas + max_scale_up(elastic))
        if not count and not elastic:
            return
        new_board = Board(board.pool, board.now, make_new_nodes(board, count), board.queues, set())
        start = board.log_position()
        on_new_nodes = self._place_pending_gangs(board, new_board, group_demands) if count else []
        if elastic:
            self.scale_ups = simulate_scale_up(board, new_board, elastic, on_new_nodes)
        board.rewind(start)
        self.used = sum(
            new_board.nodes.pods[i] < node.max_pods for i, node in enumerate(new_board.nodes.nodes)
        )

    def _place_pending_gangs(
        self, board: Board, new_board: Board, group_demands: Sequence[GroupDemand]
    ) -> list[UnplacedReplicas]:
        """Place the pending gangs. Return the replicas that had to be placed on new nodes."""
        rejected: set[Hashable] = set()
        full, on_new_nodes = FullRoles(), list[UnplacedReplicas]()
        for group_demand in group_demands:
            for gang in () if group_demand.group.request_key in rejected else group_demand:
                placed = _place_gang(board, new_board, gang, full)
                if placed is None:
                    # Other gangs with the same request do not fit either.
                    rejected.add(group_demand.group.request_key)
                    break
                self.served.append(gang)
                on_new_nodes += placed
        return on_new_nodes


def _place_gang(board: Board, new_board: Board, gang: Gang, full: FullRoles) -> list[UnplacedReplicas] | None:
    """Place the whole gang and return its replicas on new nodes.

    If it does not fit, return None and leave both boards unchanged.
    """
    before, new_board_mark = board.log_position(), new_board.log_position()
    twin = new_board.add(gang.workload, 0, ())
    placed = _try_place_gang(board, new_board, gang, twin, full)
    if placed is None and may_overcommit(gang):
        board.rewind(before)
        new_board.rewind(new_board_mark)
        with ignoring_limits(gang, twin):
            placed = _try_place_gang(board, new_board, gang, twin, FullRoles())
    if placed is None:
        board.rewind(before)
        new_board.rewind(new_board_mark)
    return placed


def _try_place_gang(
    board: Board, new_board: Board, gang: Gang, twin: Gang, full: FullRoles
) -> list[UnplacedReplicas] | None:
    request_key = None if gang.group is None else gang.group.request_key
    on_new_nodes: list[UnplacedReplicas] = []
    for need in next(arrangements(gang)):
        name, left = need.part.role.name, need.count
        if (request_key, name) not in full:
            left -= place_as_many_as_fit(
                board, gang, ReplicaRequest(need.part, left), UsableCapacity.BOOTING, None
            )
            # Nodes that are full only because of spread limits have room for other gangs.
            if left and need.part.replicas_by_node is None:
                full.add((request_key, name))
        if left:
            if not place_replicas(
                new_board, twin, ReplicaRequest(twin.find_part(name), left), UsableCapacity.NOW, None
            ):
                return None
            on_new_nodes.append(UnplacedReplicas(gang, need.part, left))
    return on_new_nodes
