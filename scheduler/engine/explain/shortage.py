"""What is short when a gang finds no room: nodes that accept it, capacity, or capacity in one piece."""

from collections.abc import Hashable, Mapping, Sequence

from berth.core.amounts import MILLI, RESOURCES
from berth.core.words import amount
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Part, Want, Way, ways
from scheduler.engine.board.ledger import GPU, KINDS
from scheduler.engine.board.matching import answers
from scheduler.engine.explain.feasible import never_fits
from scheduler.engine.explain.mismatches import mismatch_numbers
from scheduler.engine.explain.new_nodes import could_add, fresh_nodes
from scheduler.engine.explain.pod_slots import too_few_seats
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Numbers, Reason

Found = tuple[Reason, Numbers]

_NOUNS = dict(zip(KINDS, ("GPUs", "CPUs", "memory"), strict=True))


def why_no_room(board: Board, gang: Gang) -> Found:
    """Return the first obstacle as the board is now; of several resources, the one that binds."""
    never = never_fits(board, gang, _alike(gang))
    if never is not None:
        return never
    way = next(ways(gang))
    closed = _closed(board, way)
    if closed is not None:
        return closed
    usable = _usable(board, way)
    short = _short(_needed(way), _free(board, usable))
    if short:
        return Reason.WAITING_FOR_CAPACITY, _capacity(board, usable, way, short)
    if any(want.scopes for want in way) and _fits_anywhere(board, gang, way):
        return Reason.TOPOLOGY, _in_one_domain(board, usable, way)
    if trials := board.efforts.exhausted(gang):
        return Reason.PLACEMENT_ATTEMPTS_EXHAUSTED, {"attempts": trials, **_fragmented(board, usable, way)}
    seats = too_few_seats(board, gang, way)
    if seats is not None:
        return seats
    return Reason.FRAGMENTED, _fragmented(board, usable, way)


def capacity_short_of(board: Board, gang: Gang, resource: str) -> Numbers | None:
    """Return the numbers of a shortage of this resource, or None where enough of it is free."""
    way, kind = next(ways(gang)), RESOURCES.index(resource)
    usable = _usable(board, way)
    short = _short(_needed(way), _free(board, usable))
    if kind not in short:
        return None
    return _capacity(board, usable, way, [kind, *(each for each in short if each != kind)])


def _alike(gang: Gang) -> Hashable:
    """What the answer for the gang's peers is stored by; a gang with pods of its own has no equal."""
    asks = None if gang.peers is None else gang.peers.asks
    return None if asks == gang.name else asks


def _closed(board: Board, way: Way) -> Found | None:
    """Nodes for a role exist or could be added later, but none accepts it now."""
    nodes = board.nodes
    for want in way:
        mask = want.part.mask
        open_now = any(
            (nodes.ready[i] or nodes.booting[i]) and (mask is None or mask[i])
            for i in range(len(nodes.nodes))
        )
        if open_now or (could_add(board) and any(answers(want.part.role, n) for n in fresh_nodes(board, 1))):
            continue
        return Reason.NODES_UNAVAILABLE, mismatch_numbers(want.part.role, nodes.nodes)
    return None


def _short(needed: Sequence[int], free: Sequence[int]) -> list[int]:
    """The resources of which too little is free, the largest missing part first."""
    short = [kind for kind in KINDS if needed[kind] > free[kind]]
    return sorted(short, key=lambda kind: (free[kind] - needed[kind]) / needed[kind])


def _capacity(board: Board, usable: Sequence[int], way: Way, short: Sequence[int]) -> Numbers:
    kind, needed, free = short[0], _needed(way), _free(board, usable)
    also = ", ".join(amount(RESOURCES[each], needed[each] - free[each]) for each in short[1:])
    numbers = {**_numbers(board, usable, way, kind), "missing": needed[kind] - free[kind]}
    return {**numbers, "also": also} if also else numbers


def _fragmented(board: Board, usable: Sequence[int], way: Way) -> Numbers:
    """Of the resource that cuts the gang up: alone, or on the nodes that have the rest of a replica free."""
    for want in way:
        alone = {kind: [_times(board, i, want.part, kind) for i in usable] for kind in KINDS
                 if _each(want.part)[kind]}  # fmt: skip
        fewest, kind = min(((sum(alone[kind]), kind) for kind in alone), default=(want.count, GPU))
        if fewest < want.count:
            return {**_numbers(board, usable, way, kind), "missing": 0}
        together = sum(min(times) for times in zip(*alone.values(), strict=True)) if alone else want.count
        if together < want.count:
            return _fragmented_beside(board, usable, way, want.count, alone)
    kind = next((kind for kind in KINDS if _needed(way)[kind]), GPU)
    return {**_numbers(board, usable, way, kind), "missing": 0}


def _fragmented_beside(
    board: Board, usable: Sequence[int], way: Way, count: int, alone: Mapping[int, Sequence[int]]
) -> Numbers:
    """Each resource alone would do; name the one without which most of the replicas fit, GPUs last."""

    def others(kind: int) -> list[int]:
        rest = [alone[other] for other in alone if other != kind]
        return [min(times) for times in zip(*rest, strict=True)]

    kind = max(alone, key=lambda kind: (min(count, sum(others(kind))), kind))
    beside = [i for i, times in zip(usable, others(kind), strict=True) if times]
    numbers = _numbers(board, beside, way, kind)
    rest = " and ".join(_NOUNS[other] for other in alone if other != kind)
    return {**numbers, "missing": max(0, _needed(way)[kind] - _free(board, beside)[kind]), "beside": rest}


def _numbers(board: Board, usable: Sequence[int], way: Way, kind: int) -> dict[str, int | float | str | None]:
    return {
        "resource": RESOURCES[kind],
        "requested": _needed(way)[kind],
        "free": _free(board, usable)[kind],
        "biggest_block": max((_block(board, i, way, kind) for i in usable), default=0),
    }


def _in_one_domain(board: Board, usable: Sequence[int], way: Way) -> Numbers:
    """What is asked for, and the most that one domain of the outermost level has free."""
    levels = [scope.constraint.required for want in way for scope in want.scopes]
    level = next((level for level in levels if level), None)
    kind = next((kind for kind in KINDS if _needed(way)[kind]), GPU)
    domains = board.topology.domains(level).values() if level else ()
    blocks = (_free(board, sorted(domain.intersection(usable)))[kind] for domain in domains)
    return {"level": level, **_numbers(board, usable, way, kind), "biggest_block": max(blocks, default=0)}


def _block(board: Board, i: int, way: Way, kind: int) -> int:
    """What one node has free in one piece, of devices: those that are whole, or for fractions the freest."""
    nodes = board.nodes
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i])
    whole = nodes.whole[i] * MILLI
    shared = all(want.part.milli < MILLI for want in way if want.part.request.devices)
    return max(whole, *nodes.devices[i]) if shared and nodes.devices[i] else whole


def _times(board: Board, i: int, part: Part, kind: int) -> int:
    """How many replicas of the role this resource of the node would hold."""
    nodes, request = board.nodes, part.request
    if part.mask is not None and not part.mask[i]:
        return 0
    if kind != GPU:
        return max(0, (nodes.cpu if kind == 1 else nodes.memory)[i]) // _each(part)[kind]
    milli = nodes.milli_on(i, request)
    return sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices


def _each(part: Part) -> tuple[int, int, int]:
    """What room for one replica is counted by: its limits."""
    return part.amounts[GPU], part.request.limit_cpu, part.request.limit_memory_mib


def _needed(way: Way) -> tuple[int, int, int]:
    gpu, cpu, memory = (sum(_each(want.part)[kind] * want.count for want in way) for kind in KINDS)
    return gpu, cpu, memory


def _usable(board: Board, way: Way) -> list[int]:
    masks = [want.part.mask for want in way]
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


def _fits_anywhere(board: Board, gang: Gang, way: Way) -> bool:
    start = board.mark()
    fits = find_room(board, gang, tuple(Want(want.part, want.count) for want in way), Horizon.LEAVING)
    board.rewind(start)
    return fits
