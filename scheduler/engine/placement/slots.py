"""Find the best slot for a replica according to the pool's placement strategies."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from heapq import heapify, heappop, heapreplace

from berth.core.values.amounts import MILLI
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole
from scheduler.engine.board.nodes import Nodes, Slot
from scheduler.engine.model import Strategy

RANKING_THRESHOLD = 64  # for this number of replicas or more, nodes are ranked only once


class UsableCapacity(IntEnum):
    """Capacity that a placement may use. Each member includes the capacity of the members before it."""

    NOW = 0  # capacity that is free now
    LEAVING = 1  # free capacity and capacity of stopping pods
    BOOTING = 2  # free capacity and capacity of stopping pods and booting nodes


def pick_slot(
    board: Board, part: BoardRole, capacity: UsableCapacity, within: AbstractSet[int] | None = None
) -> Slot | None:
    """Return the best slot for one replica, or None if no slot fits. Ties are resolved by node name."""
    if part.avoid_mask is not None:
        kind = bytes(not avoid_mask for avoid_mask in part.avoid_mask)
        preferred = _pick_slot(board, part, capacity, within, kind)
        if preferred is not None:
            return preferred
    return _pick_slot(board, part, capacity, within, None)


def interchangeable_slots(
    board: Board, part: BoardRole, count: int, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> Iterator[Slot]:
    """Yield the best slot for each of `count` equal replicas.

    The caller must place a replica on each slot before requesting the next one.
    """
    nodes, strategy = board.nodes, board.pool.node_strategy
    spread = board.pool.device_strategy is Strategy.SPREAD
    whole = not part.request.devices or (part.milli == MILLI and not part.request.gpu_memory_mib)
    # For many replicas, do not recompute fragmentation while the same node has room.
    refill = (
        count >= RANKING_THRESHOLD
        if strategy is Strategy.FRAGMENTATION
        else strategy is Strategy.BINPACK and whole
    )
    if count >= RANKING_THRESHOLD and not refill:
        yield from _ranked_slots(board, part, capacity, within)
        return
    while (slot := pick_slot(board, part, capacity, within)) is not None:
        yield slot
        i = slot.node
        while refill and has_room(nodes, i, part, capacity):
            more = find_slot_on_node(nodes, i, part, capacity, spread)
            if more is None:
                break
            yield more


def _ranked_slots(
    board: Board, part: BoardRole, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> Iterator[Slot]:
    """Yield the slots that repeated calls to `pick_slot` would return."""
    preferred = None if part.avoid_mask is None else [not avoid_mask for avoid_mask in part.avoid_mask]
    for only in (None,) if preferred is None else (preferred, None):
        yield from _slots_from_heap(board, part, capacity, within, only)


def _slots_from_heap(
    board: Board,
    part: BoardRole,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None,
    only: Sequence[bool] | None,
) -> Iterator[Slot]:
    nodes, spread = board.nodes, board.pool.device_strategy is Strategy.SPREAD
    key = _node_sort_key(board, part, capacity, within)
    heap = [
        (key(i), i)
        for i in (range(len(nodes.nodes)) if within is None else within)
        if (only is None or only[i])
        and (nodes.ready[i] or (capacity >= UsableCapacity.BOOTING and nodes.booting[i]))
    ]
    heapify(heap)
    while heap:
        i = heap[0][1]
        slot = (
            find_slot_on_node(nodes, i, part, capacity, spread)
            if has_room(nodes, i, part, capacity)
            else None
        )
        if slot is None:
            heappop(heap)
            continue
        yield slot
        heapreplace(heap, (key(i), i))


def _node_sort_key(
    board: Board, part: BoardRole, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> Callable[[int], tuple[float, ...]]:
    """Return a sort key that orders nodes in the same way as `_candidates`."""
    nodes = board.nodes
    if board.pool.node_strategy is not Strategy.BINPACK:
        return _spreading_key(nodes, part)
    packed = _packing_key(nodes, part)
    if within is not None or capacity >= UsableCapacity.BOOTING or not part.request.devices:
        return packed
    shared = nodes.partly_free_nodes
    return lambda i: (0, *packed(i)) if i in shared else (1, nodes.whole[i], i)


def _pick_slot(
    board: Board,
    part: BoardRole,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None,
    only: bytes | None,
) -> Slot | None:
    if board.pool.node_strategy is Strategy.FRAGMENTATION:
        return _pick_least_fragmenting_slot(board, part, capacity, within, only)
    nodes, spread = board.nodes, board.pool.device_strategy is Strategy.SPREAD
    for i in _candidates(board, part, capacity, within):
        if only is not None and not only[i]:
            continue
        if not has_room(nodes, i, part, capacity):
            continue
        slot = find_slot_on_node(nodes, i, part, capacity, spread)
        if slot is not None:
            return slot
    return None


def _pick_least_fragmenting_slot(
    board: Board,
    part: BoardRole,
    capacity: UsableCapacity,
    within: AbstractSet[int] | None,
    only: bytes | None,
) -> Slot | None:
    nodes, strategy = board.nodes, board.pool.device_strategy
    for ready in (True, False) if capacity >= UsableCapacity.BOOTING else (True,):
        for i, device in board.fragmentation.nodes_best_first(part, within):
            if nodes.ready[i] is not ready or (only is not None and not only[i]):
                continue
            if not has_room(nodes, i, part, capacity):
                continue
            if device >= 0 and i not in nodes.leaving and strategy is Strategy.FRAGMENTATION:
                return Slot(i, (device,), nodes.device_share_milli(i, part.request))
            slot = find_slot_on_node(nodes, i, part, capacity, strategy is Strategy.SPREAD)
            if slot is not None:
                return slot
    return None


def has_room(nodes: Nodes, i: int, part: BoardRole, capacity: UsableCapacity) -> bool:
    """Return whether the node accepts another replica. Free devices are not checked."""
    request = part.request
    if part.ignores_limits:
        if nodes.cpu_unrequested[i] < request.cpu or nodes.memory_unrequested[i] < request.memory_mib:
            return False
    elif nodes.cpu[i] < request.limit_cpu or nodes.memory[i] < request.limit_memory_mib:
        return False
    if nodes.pods[i] < 1:
        return False
    if part.mask is not None and not part.mask[i]:
        return False
    spread = part.role.spread_per_node
    if part.replicas_by_node is not None and spread is not None and part.replicas_by_node.get(i, 0) >= spread:
        return False
    return capacity > UsableCapacity.NOW or i not in nodes.leaving or nodes.can_start_now(i, (), 0, request)


def find_slot_on_node(
    nodes: Nodes, i: int, part: BoardRole, capacity: UsableCapacity, spread: bool = False
) -> Slot | None:
    """Return a slot on the node for one replica, or None if too few devices are free."""
    count = part.request.devices
    if not count:
        return Slot(i, (), 0)
    milli = nodes.device_share_milli(i, part.request)
    if milli == MILLI and nodes.whole[i] < count:
        return None
    free = nodes.devices[i]
    if i in nodes.leaving:
        now = [nodes.free_now(i, d) >= milli for d in range(len(free))]
        usable = [
            d for d in range(len(free)) if free[d] >= milli and (now[d] or capacity > UsableCapacity.NOW)
        ]
        usable.sort(key=lambda d: (not now[d], -free[d] if spread else free[d], d))
    else:
        usable = [d for d, part_free in enumerate(free) if part_free >= milli]
        if milli < MILLI:
            usable.sort(key=lambda d: (-free[d] if spread else free[d], d))
    if len(usable) < count:
        return None
    return Slot(i, tuple(sorted(usable[:count])), milli)


def _candidates(
    board: Board, part: BoardRole, capacity: UsableCapacity, within: AbstractSet[int] | None
) -> Iterable[int]:
    nodes = board.nodes
    pack = board.pool.node_strategy is Strategy.BINPACK
    whole = part.milli == MILLI and not part.request.gpu_memory_mib
    if within is None and capacity < UsableCapacity.BOOTING and pack and part.request.devices:
        return (
            _fewest_free_devices_first(nodes, part.request.devices)
            if whole
            else _shared_devices_first(nodes, part)
        )
    # Skip full nodes before sorting, because most nodes are usually full.
    least = part.request.devices if whole else 0
    open_nodes = [
        i
        for i in (range(len(nodes.nodes)) if within is None else within)
        if nodes.whole[i] >= least
        and (nodes.ready[i] or (capacity >= UsableCapacity.BOOTING and nodes.booting[i]))
    ]
    return sorted(open_nodes, key=_packing_key(nodes, part) if pack else _spreading_key(nodes, part))


def _fewest_free_devices_first(nodes: Nodes, count: int) -> Iterator[int]:
    for bucket in nodes.nodes_by_free_devices[count:]:
        yield from bucket


def _shared_devices_first(nodes: Nodes, part: BoardRole) -> Iterator[int]:
    """Yield the nodes to try for a fraction of a device, those with a partly free device first."""
    yield from sorted(nodes.partly_free_nodes, key=_packing_key(nodes, part))
    for bucket in nodes.nodes_by_free_devices:
        yield from bucket


def _packing_key(nodes: Nodes, part: BoardRole) -> Callable[[int], tuple[int, ...]]:
    if not part.request.devices:
        return lambda i: (not nodes.ready[i], len(nodes.devices[i]) > 0, nodes.cpu[i], i)
    count = part.request.devices

    def key(i: int) -> tuple[int, ...]:
        milli = nodes.device_share_milli(i, part.request)
        opened = 0
        if milli < MILLI:
            opened = max(0, count - sum(milli <= free < MILLI for free in nodes.devices[i]))
        return (not nodes.ready[i], opened, nodes.gpu[i], i)

    return key


def _spreading_key(nodes: Nodes, part: BoardRole) -> Callable[[int], tuple[float, ...]]:
    def key(i: int) -> tuple[float, ...]:
        if part.request.devices:
            return (not nodes.ready[i], False, -nodes.gpu[i] / max(1, len(nodes.devices[i])), i)
        return (not nodes.ready[i], len(nodes.devices[i]) > 0, -nodes.cpu[i] / max(1, nodes.nodes[i].cpu), i)

    return key
