"""Explain why a gang does not fit: no node accepts it, or capacity is short or fragmented."""

from collections.abc import Hashable, Mapping, Sequence

from berth.core.amounts import MILLI, RESOURCES
from berth.core.words import format_amount
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, ReplicaRequest, arrangements
from scheduler.engine.board.ledger import GPU, KINDS
from scheduler.engine.board.matching import meets_constraints
from scheduler.engine.explain.feasible import permanent_obstacle
from scheduler.engine.explain.mismatches import mismatch_numbers
from scheduler.engine.explain.new_nodes import addable_node_count, make_new_nodes
from scheduler.engine.explain.pod_slots import pod_slot_obstacle
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Numbers, Reason

Obstacle = tuple[Reason, Numbers]

_NOUNS = dict(zip(KINDS, ("GPUs", "CPUs", "memory"), strict=True))


def explain_shortage(board: Board, gang: Gang) -> Obstacle:
    """Return the first obstacle on the current board. A shortage is that of the scarcest resource."""
    never = permanent_obstacle(board, gang, _cache_key(gang))
    if never is not None:
        return never
    arrangement = next(arrangements(gang))
    closed = _unavailable_nodes(board, arrangement)
    if closed is not None:
        return closed
    usable = _usable_nodes(board, arrangement)
    short = _short_resources(_total_request(arrangement), _free_amounts(board, usable))
    if short:
        return Reason.WAITING_FOR_CAPACITY, _capacity_numbers(board, usable, arrangement, short)
    if any(need.scopes for need in arrangement) and _fits_anywhere(board, gang, arrangement):
        return Reason.TOPOLOGY, _domain_numbers(board, usable, arrangement)
    if trials := board.cycle.placement_attempts.attempts_if_exhausted(gang):
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {
            "attempts": trials,
            **_fragmentation_numbers(board, usable, arrangement),
        }
    seats = pod_slot_obstacle(board, gang, arrangement)
    if seats is not None:
        return seats
    return Reason.FRAGMENTED, _fragmentation_numbers(board, usable, arrangement)


def capacity_shortage(board: Board, gang: Gang, resource: str) -> Numbers | None:
    """Return the numbers of the shortage of this resource, or None if enough is free."""
    arrangement, kind = next(arrangements(gang)), RESOURCES.index(resource)
    usable = _usable_nodes(board, arrangement)
    short = _short_resources(_total_request(arrangement), _free_amounts(board, usable))
    if kind not in short:
        return None
    return _capacity_numbers(board, usable, arrangement, [kind, *(other for other in short if other != kind)])


def _cache_key(gang: Gang) -> Hashable:
    """Return the cache key shared by all gangs of the group, or None for a gang with pods."""
    request_key = None if gang.group is None else gang.group.request_key
    return None if request_key == gang.name else request_key


def _unavailable_nodes(board: Board, arrangement: Arrangement) -> Obstacle | None:
    """Return an obstacle if some role is accepted by no node now, else None."""
    nodes = board.nodes
    for need in arrangement:
        mask = need.part.mask
        open_now = any(
            (nodes.ready[i] or nodes.booting[i]) and (mask is None or mask[i])
            for i in range(len(nodes.nodes))
        )
        if open_now or (
            addable_node_count(board)
            and any(meets_constraints(need.part.role, n) for n in make_new_nodes(board, 1))
        ):
            continue
        return Reason.NODES_UNAVAILABLE, mismatch_numbers(need.part.role, nodes.nodes)
    return None


def _short_resources(needed: Sequence[int], free: Sequence[int]) -> list[int]:
    """Return the resources that are short, in descending order of the missing fraction."""
    short = [kind for kind in KINDS if needed[kind] > free[kind]]
    return sorted(short, key=lambda kind: (free[kind] - needed[kind]) / needed[kind])


def _capacity_numbers(
    board: Board, usable: Sequence[int], arrangement: Arrangement, short: Sequence[int]
) -> Numbers:
    kind, needed, free = short[0], _total_request(arrangement), _free_amounts(board, usable)
    also = ", ".join(format_amount(RESOURCES[kind], needed[kind] - free[kind]) for kind in short[1:])
    numbers = {**_numbers(board, usable, arrangement, kind), "missing": needed[kind] - free[kind]}
    return {**numbers, "also": also} if also else numbers


def _fragmentation_numbers(board: Board, usable: Sequence[int], arrangement: Arrangement) -> Numbers:
    """Return the numbers for the fragmented resource."""
    for need in arrangement:
        replicas_by_resource = {
            kind: [_max_replicas(board, i, need.part, kind) for i in usable]
            for kind in KINDS
            if _replica_amounts(need.part)[kind]
        }
        fewest, kind = min(
            ((sum(replicas_by_resource[kind]), kind) for kind in replicas_by_resource),
            default=(need.count, GPU),
        )
        if fewest < need.count:
            return {**_numbers(board, usable, arrangement, kind), "missing": 0}
        together = (
            sum(min(times) for times in zip(*replicas_by_resource.values(), strict=True))
            if replicas_by_resource
            else need.count
        )
        if together < need.count:
            return _combined_fragmentation_numbers(
                board, usable, arrangement, need.count, replicas_by_resource
            )
    kind = next((kind for kind in KINDS if _total_request(arrangement)[kind]), GPU)
    return {**_numbers(board, usable, arrangement, kind), "missing": 0}


def _combined_fragmentation_numbers(
    board: Board,
    usable: Sequence[int],
    arrangement: Arrangement,
    count: int,
    replicas_by_resource: Mapping[int, Sequence[int]],
) -> Numbers:
    """Return the numbers if each resource would suffice alone, but not all on the same nodes.

    The reported resource is the one whose absence from the request would let the most replicas fit.
    On a tie, GPUs come last.
    """

    def others(kind: int) -> list[int]:
        rest = [replicas_by_resource[other] for other in replicas_by_resource if other != kind]
        return [min(times) for times in zip(*rest, strict=True)]

    kind = max(replicas_by_resource, key=lambda kind: (min(count, sum(others(kind))), kind))
    nodes_with_others = [i for i, times in zip(usable, others(kind), strict=True) if times]
    numbers = _numbers(board, nodes_with_others, arrangement, kind)
    rest = " and ".join(_NOUNS[other] for other in replicas_by_resource if other != kind)
    return {
        **numbers,
        "missing": max(0, _total_request(arrangement)[kind] - _free_amounts(board, nodes_with_others)[kind]),
        "beside": rest,
    }


def _numbers(
    board: Board, usable: Sequence[int], arrangement: Arrangement, kind: int
) -> dict[str, int | float | str | None]:
    return {
        "resource": RESOURCES[kind],
        "requested": _total_request(arrangement)[kind],
        "free": _free_amounts(board, usable)[kind],
        "biggest_block": max((_largest_block(board, i, arrangement, kind) for i in usable), default=0),
    }


def _domain_numbers(board: Board, usable: Sequence[int], arrangement: Arrangement) -> Numbers:
    """Return the request and the largest free amount within one domain of the outermost level."""
    levels = [scope.constraint.required for need in arrangement for scope in need.scopes]
    level = next((level for level in levels if level), None)
    kind = next((kind for kind in KINDS if _total_request(arrangement)[kind]), GPU)
    domains = board.topology.domains(level).values() if level else ()
    blocks = (_free_amounts(board, sorted(domain.intersection(usable)))[kind] for domain in domains)
    return {
        "level": level,
        **_numbers(board, usable, arrangement, kind),
        "biggest_block": max(blocks, default=0),
    }


def _largest_block(board: Board, i: int, arrangement: Arrangement, kind: int) -> int:
    """Return the node's largest free block: whole devices or, for fractions, one device."""
    nodes = board.nodes
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i])
    whole = nodes.whole[i] * MILLI
    shared = all(need.part.milli < MILLI for need in arrangement if need.part.request.devices)
    return max(whole, *nodes.devices[i]) if shared and nodes.devices[i] else whole


def _max_replicas(board: Board, i: int, part: BoardRole, kind: int) -> int:
    """Return how many replicas of the role fit on the node, considering only this resource."""
    nodes, request = board.nodes, part.request
    if part.mask is not None and not part.mask[i]:
        return 0
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i]) // _replica_amounts(part)[kind]
    milli = nodes.milli_on(i, request)
    return sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices


def _replica_amounts(part: BoardRole) -> tuple[int, int, int]:
    """Return the GPU request and the CPU and memory limits of one replica."""
    return part.amounts[GPU], part.request.limit_cpu, part.request.limit_memory_mib


def _total_request(arrangement: Arrangement) -> tuple[int, int, int]:
    gpu, cpu, memory = (
        sum(_replica_amounts(need.part)[kind] * need.count for need in arrangement) for kind in KINDS
    )
    return gpu, cpu, memory


def _usable_nodes(board: Board, arrangement: Arrangement) -> list[int]:
    masks = [need.part.mask for need in arrangement]
    return [
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and any(mask is None or mask[i] for mask in masks)
    ]


def _free_amounts(board: Board, usable: Sequence[int]) -> tuple[int, int, int]:
    nodes = board.nodes
    if len(usable) == sum(nodes.ready):
        return nodes.free()
    return (
        sum(max(0, nodes.gpu[i]) for i in usable),
        sum(max(0, nodes.cpu[i]) for i in usable),
        sum(max(0, nodes.memory[i]) for i in usable),
    )


def _fits_anywhere(board: Board, gang: Gang, arrangement: Arrangement) -> bool:
    start = board.mark()
    fits = find_room(
        board, gang, tuple(ReplicaRequest(need.part, need.count) for need in arrangement), Horizon.LEAVING
    )
    board.rewind(start)
    return fits
