"""Start pending gangs on free capacity, without evictions."""

from collections.abc import Hashable, Sequence

from scheduler.engine.actions.backfill import clear_hold, hold_nodes, hold_nodes_for_first_pending_gang
from scheduler.engine.actions.reservations import start_reserved_gangs
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_bound, find_pending_groups
from scheduler.engine.board.gang import Gang, PendingGroup, arrangements, total_request
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.board.quota_hold import hold_quotas
from scheduler.engine.explain.shortage import explain_shortage
from scheduler.engine.placement.find_room import may_use_held_nodes, place_arrangement
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.plan import Kind, Numbers, Reason

MAX_REQUEST_KINDS = 64  # maximum number of distinct requests that `_reject_all_if_none_start` tries

Rejection = tuple[Reason, Numbers]
# Cached rejections by request, shared by all gangs with the same request.
RejectionCache = dict[Hashable, Rejection]


def start_gangs(board: Board, choice: int) -> None:
    start_reserved_gangs(board, choice)
    _start_pending_gangs(board, choice)


def _start_pending_gangs(board: Board, choice: int) -> None:
    if not choice:  # keep the hold while workloads try their second and later pools
        clear_hold(board)
    groups, rejected = find_pending_groups(board, choice), RejectionCache()
    if not choice:
        hold_quotas(board, groups)
    if _reject_all_if_none_start(board, groups):
        hold_nodes_for_first_pending_gang(board, groups)
        return
    order = PendingOrder(board, groups)
    for group, gang in order:
        with board.trial(gang, default_reason=Reason.WAITING_FOR_CAPACITY) as trial:
            rejection = _try_to_start(board, group, gang, rejected)
            if rejection is None:
                trial.accept(Kind.START)
            else:
                trial.reject(*rejection)
        if trial.kind is None:
            order.skip_group(group)
            hold_nodes(board, gang)


def _reject_all_if_none_start(board: Board, groups: Sequence[PendingGroup]) -> bool:
    """Reject all pending groups if none of them can start. Return whether they were rejected."""
    start, rejected, rejections = board.log_position(), RejectionCache(), []
    for group in groups:
        gang = group.gangs[group.at]
        rejection = _try_to_start(board, group, gang, rejected)
        if rejection is None or len(rejected) > MAX_REQUEST_KINDS:
            board.rewind(start)
            return False
        rejections.append((gang, *rejection))
    board.reject_all(rejections)
    return True


def _try_to_start(
    board: Board, group: PendingGroup, gang: Gang, rejected: RejectionCache
) -> Rejection | None:
    """Try to place the gang. Return its rejection, or None if the gang was placed."""
    bound = exceeded_bound(gang, gang.requested)
    if bound is not None and _start_on_larger_devices(board, gang):
        return None
    if bound is not None and gang.simple:
        return bound
    kind = _rejection_key(board, group, gang)
    if kind not in rejected:
        if _place_gang(board, gang):
            return None
        if bound is not None:
            return bound
        rejected[kind] = _explain_rejection(board, gang)
    return rejected[kind]


def _rejection_key(board: Board, group: PendingGroup, gang: Gang) -> Hashable:
    """Return a cache key that groups share if they are rejected for the same reason."""
    bounds = None if gang.simple else (gang.account, gang.non_preemptible)
    return group.request_key, may_use_held_nodes(board, gang), bounds


def _explain_rejection(board: Board, gang: Gang) -> Rejection:
    hold = board.cycle.held_nodes()
    if hold is not None and not may_use_held_nodes(board, gang):
        board.cycle.backfill_hold = None
        start = board.log_position()
        fits = _place_gang(board, gang)
        board.rewind(start)
        board.cycle.backfill_hold = hold
        if fits:
            return Reason.BEHIND_RESERVATION, {"behind": hold.name, "until": hold.until}
    return explain_shortage(board, gang)


def _place_gang(board: Board, gang: Gang) -> bool:
    return any(
        exceeded_bound(gang, total_request(arrangement), arrangement) is None
        and place_arrangement(board, gang, arrangement, capacity)
        for capacity in _capacities_to_try(board)
        for arrangement in arrangements(gang)
    )


def _start_on_larger_devices(board: Board, gang: Gang) -> bool:
    """Place the gang on devices with more memory, where it uses a smaller fraction.

    Return whether it was placed.
    """
    parts = [part for part in gang.parts if part.request.gpu_memory_mib]
    matcher = board.matcher
    original_requests = [(part.milli, part.amounts, part.mask) for part in parts]
    for min_memory_mib in matcher.larger_memory_sizes() if parts else ():
        for part in parts:
            part.milli, part.mask = (
                matcher.share_milli_on_smallest_device(part.role, min_memory_mib, part.project),
                matcher.mask(part.role, min_memory_mib, part.project),
            )
            part.amounts = (part.milli * part.request.devices, *part.amounts[1:])
        gang.reset_requested_amounts()
        started = exceeded_bound(gang, gang.requested) is None and _place_gang(board, gang)
        for part, (milli, amounts, mask) in zip(parts, original_requests, strict=True):
            part.milli, part.amounts, part.mask = milli, amounts, mask
        gang.reset_requested_amounts()
        if started:
            return True
    return False


def _capacities_to_try(board: Board) -> list[UsableCapacity]:
    """Return when replicas may start: now and, if applicable, once pods have stopped or nodes have booted."""
    capacities = [UsableCapacity.NOW]
    if board.nodes.leaving:
        capacities.append(UsableCapacity.LEAVING)
    if any(board.nodes.booting):
        capacities.append(UsableCapacity.BOOTING)
    return capacities
