"""Explain why a gang finds no room: no node accepts it, or capacity is short or fragmented."""

from collections.abc import Hashable, Mapping, Sequence

from berth.core.amounts import MILLI, RESOURCES
from berth.core.words import amount
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang, ReplicaRequest, arrangements
from scheduler.engine.board.ledger import GPU, KINDS
from scheduler.engine.board.matching import is_kind_of
from scheduler.engine.explain.feasible import never_fits
from scheduler.engine.explain.mismatches import mismatch_numbers
from scheduler.engine.explain.new_nodes import could_add, fresh_nodes
from scheduler.engine.explain.pod_slots import short_of_pod_slots
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Numbers, Reason

Obstacle = tuple[Reason, Numbers]

_NOUNS = dict(zip(KINDS, ("GPUs", "CPUs", "memory"), strict=True))


def why_no_room(board: Board, gang: Gang) -> Obstacle:
    """Return the first obstacle on the current board. Among several resources, report the scarcest."""
    never = never_fits(board, gang, _alike(gang))
    if never is not None:
        return never
    arrangement = next(arrangements(gang))
    closed = _closed(board, arrangement)
    if closed is not None:
        return closed
    usable = _usable(board, arrangement)
    short = _short(_needed(arrangement), _free(board, usable))
    if short:
        return Reason.WAITING_FOR_CAPACITY, _capacity(board, usable, arrangement, short)
    if any(need.scopes for need in arrangement) and _fits_anywhere(board, gang, arrangement):
        return Reason.TOPOLOGY, _in_one_domain(board, usable, arrangement)
    if trials := board.cycle.efforts.exhausted(gang):
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {
            "attempts": trials,
            **_fragmented(board, usable, arrangement),
        }
    seats = short_of_pod_slots(board, gang, arrangement)
    if seats is not None:
        return seats
    return Reason.FRAGMENTED, _fragmented(board, usable, arrangement)


def capacity_short_of(board: Board, gang: Gang, resource: str) -> Numbers | None:
    """Return the numbers of a shortage of this resource, or None if enough is free."""
    arrangement, kind = next(arrangements(gang)), RESOURCES.index(resource)
    usable = _usable(board, arrangement)
    short = _short(_needed(arrangement), _free(board, usable))
    if kind not in short:
        return None
    return _capacity(board, usable, arrangement, [kind, *(each for each in short if each != kind)])


def _alike(gang: Gang) -> Hashable:
    """Return the cache key that the gang shares with its group, or None for a gang with pods."""
    request_key = None if gang.group is None else gang.group.request_key
    return None if request_key == gang.name else request_key


def _closed(board: Board, arrangement: Arrangement) -> Obstacle | None:
    """Return an obstacle if no node accepts a role now, although some could later."""
    nodes = board.nodes
    for need in arrangement:
        mask = need.part.mask
        open_now = any(
            (nodes.ready[i] or nodes.booting[i]) and (mask is None or mask[i])
            for i in range(len(nodes.nodes))
        )
        if open_now or (
            could_add(board) and any(is_kind_of(need.part.role, n) for n in fresh_nodes(board, 1))
        ):
            continue
        return Reason.NODES_UNAVAILABLE, mismatch_numbers(need.part.role, nodes.nodes)
    return None


def _short(needed: Sequence[int], free: Sequence[int]) -> list[int]:
    """Return the resources that are short, the largest missing fraction first."""
    short = [kind for kind in KINDS if needed[kind] > free[kind]]
    return sorted(short, key=lambda kind: (free[kind] - needed[kind]) / needed[kind])


def _capacity(board: Board, usable: Sequence[int], arrangement: Arrangement, short: Sequence[int]) -> Numbers:
    kind, needed, free = short[0], _needed(arrangement), _free(board, usable)
    also = ", ".join(amount(RESOURCES[each], needed[each] - free[each]) for each in short[1:])
    numbers = {**_numbers(board, usable, arrangement, kind), "missing": needed[kind] - free[kind]}
    return {**numbers, "also": also} if also else numbers


def _fragmented(board: Board, usable: Sequence[int], arrangement: Arrangement) -> Numbers:
    """Return the numbers of the fragmented resource, on all nodes or on nodes with other resources free."""
    for need in arrangement:
        alone = {kind: [_times(board, i, need.part, kind) for i in usable] for kind in KINDS
                 if _each(need.part)[kind]}  # fmt: skip
        fewest, kind = min(((sum(alone[kind]), kind) for kind in alone), default=(need.count, GPU))
        if fewest < need.count:
            return {**_numbers(board, usable, arrangement, kind), "missing": 0}
        together = sum(min(times) for times in zip(*alone.values(), strict=True)) if alone else need.count
        if together < need.count:
            return _fragmented_beside(board, usable, arrangement, need.count, alone)
    kind = next((kind for kind in KINDS if _needed(arrangement)[kind]), GPU)
    return {**_numbers(board, usable, arrangement, kind), "missing": 0}


def _fragmented_beside(
    board: Board,
    usable: Sequence[int],
    arrangement: Arrangement,
    count: int,
    alone: Mapping[int, Sequence[int]],
) -> Numbers:
    """Return the numbers for replicas that would fit by each resource alone.

    The reported resource is the one without which most replicas would fit, GPUs last.
    """

    def others(kind: int) -> list[int]:
        rest = [alone[other] for other in alone if other != kind]
        return [min(times) for times in zip(*rest, strict=True)]

    kind = max(alone, key=lambda kind: (min(count, sum(others(kind))), kind))
    beside = [i for i, times in zip(usable, others(kind), strict=True) if times]
    numbers = _numbers(board, beside, arrangement, kind)
    rest = " and ".join(_NOUNS[other] for other in alone if other != kind)
    return {
        **numbers,
        "missing": max(0, _needed(arrangement)[kind] - _free(board, beside)[kind]),
        "beside": rest,
    }


def _numbers(
    board: Board, usable: Sequence[int], arrangement: Arrangement, kind: int
) -> dict[str, int | float | str | None]:
    return {
        "resource": RESOURCES[kind],
        "requested": _needed(arrangement)[kind],
        "free": _free(board, usable)[kind],
        "biggest_block": max((_block(board, i, arrangement, kind) for i in usable), default=0),
    }


def _in_one_domain(board: Board, usable: Sequence[int], arrangement: Arrangement) -> Numbers:
    """Return the request and the largest amount that one domain of the outermost level has free."""
    levels = [scope.constraint.required for need in arrangement for scope in need.scopes]
    level = next((level for level in levels if level), None)
    kind = next((kind for kind in KINDS if _needed(arrangement)[kind]), GPU)
    domains = board.topology.domains(level).values() if level else ()
    blocks = (_free(board, sorted(domain.intersection(usable)))[kind] for domain in domains)
    return {
        "level": level,
        **_numbers(board, usable, arrangement, kind),
        "biggest_block": max(blocks, default=0),
    }


def _block(board: Board, i: int, arrangement: Arrangement, kind: int) -> int:
    """Return the largest free block of a node: whole devices or, for fractions, the emptiest device."""
    nodes = board.nodes
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i])
    whole = nodes.whole[i] * MILLI
    shared = all(need.part.milli < MILLI for need in arrangement if need.part.request.devices)
    return max(whole, *nodes.devices[i]) if shared and nodes.devices[i] else whole


def _times(board: Board, i: int, part: BoardRole, kind: int) -> int:
    """Return the number of replicas of the role that this resource of the node would allow."""
    nodes, request = board.nodes, part.request
    if part.mask is not None and not part.mask[i]:
        return 0
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i]) // _each(part)[kind]
    milli = nodes.milli_on(i, request)
    return sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices


def _each(part: BoardRole) -> tuple[int, int, int]:
    """Return the amounts of one replica, by limits."""
    return part.amounts[GPU], part.request.limit_cpu, part.request.limit_memory_mib


def _needed(arrangement: Arrangement) -> tuple[int, int, int]:
    gpu, cpu, memory = (sum(_each(need.part)[kind] * need.count for need in arrangement) for kind in KINDS)
    return gpu, cpu, memory


def _usable(board: Board, arrangement: Arrangement) -> list[int]:
    masks = [need.part.mask for need in arrangement]
    return [
        i
        for i, ready in enumerate(board.nodes.ready)
        if ready and any(mask is None or mask[i] for mask in masks)
    ]


def _free(board: Board, usable: Sequence[int]) -> tuple[int, int, int]:
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
