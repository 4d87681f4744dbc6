"""Start pending gangs on free capacity, without evictions."""

from collections.abc import Hashable, Sequence

from scheduler.engine.actions.backfill import hold_nodes
from scheduler.engine.actions.reservations import start_reserved_gangs
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import over_bounds, pending
from scheduler.engine.board.gang import Gang, PendingGroup, amounts_of, arrangements
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.explain.shortage import why_no_room
from scheduler.engine.placement.find_room import find_room, may_use_held_nodes
from scheduler.engine.placement.spots import Horizon
from scheduler.engine.plan import Kind, Numbers, Reason

MOST_KINDS = 64  # kinds of requests tried before `_all_refused` gives up

Refusal = tuple[Reason, Numbers]
Refused = dict[Hashable, Refusal]  # one refusal for all gangs with the same request


def start(board: Board, choice: int) -> None:
    start_reserved_gangs(board, choice)
    _start_pending(board, choice)


def _start_pending(board: Board, choice: int) -> None:
    if not choice:  # the hold stays while workloads try their second pool
        board.cycle.backfill_hold = None
    waiting, refused = pending(board, choice), Refused()
    if board.pool.reservation_after is None and _all_refused(board, waiting):
        return
    order = PendingOrder(board, waiting)
    for group, gang in order:
        with board.trial(gang, otherwise=Reason.WAITING_FOR_CAPACITY) as trial:
            refusal = _started_or(board, group, gang, refused)
            if refusal is None:
                trial.accept(Kind.START)
            else:
                trial.refuse(*refusal)
        if trial.kind is None:
            order.leave(group)
            hold_nodes(board, gang, gang.requested)


def _all_refused(board: Board, waiting: Sequence[PendingGroup]) -> bool:
    """Return whether no group can start. If so, refuse all of them.

    While no gang starts, the board is the same for all groups and their order does not matter.
    """
    start, refused, refusals = board.mark(), Refused(), []
    for group in waiting:
        gang = group.gangs[group.at]
        refusal = _started_or(board, group, gang, refused)
        if refusal is None or len(refused) > MOST_KINDS:
            board.rewind(start)
            return False
        refusals.append((gang, *refusal))
    board.refuse_all(refusals)
    return True


def _started_or(board: Board, group: PendingGroup, gang: Gang, refused: Refused) -> Refusal | None:
    """Place the gang. Return None if it was placed, else the reason that it cannot start."""
    bound = over_bounds(gang, gang.requested)
    if bound is not None and _starts_on_larger_devices(board, gang):
        return None
    if bound is not None and gang.simple:
        return bound
    kind = _alike(board, group, gang)
    if kind not in refused:
        if _start(board, gang):
            return None
        if bound is not None:
            return bound
        refused[kind] = _why(board, gang)
    return refused[kind]


def _alike(board: Board, group: PendingGroup, gang: Gang) -> Hashable:
    """Return a key that is equal for groups with the same refusal."""
    bounds = None if gang.simple else (gang.account, gang.non_preemptible)
    return group.request_key, may_use_held_nodes(board, gang), bounds


def _why(board: Board, gang: Gang) -> Refusal:
    hold = board.cycle.backfill_hold
    if hold is not None and not may_use_held_nodes(board, gang):
        board.cycle.backfill_hold = None
        start = board.mark()
        fits = _start(board, gang)
        board.rewind(start)
        board.cycle.backfill_hold = hold
        if fits:
            return Reason.BEHIND_RESERVATION, {"behind": hold.name, "until": hold.until}
    return why_no_room(board, gang)


def _start(board: Board, gang: Gang) -> bool:
    return any(
        over_bounds(gang, amounts_of(arrangement)) is None and find_room(board, gang, arrangement, horizon)
        for horizon in _horizons(board)
        for arrangement in arrangements(gang)
    )


def _starts_on_larger_devices(board: Board, gang: Gang) -> bool:
    """Place the gang on larger devices, where it takes a smaller fraction and stays within its bounds."""
    parts = [part for part in gang.parts if part.request.gpu_memory_mib]
    matcher = board.matcher
    saved = [(part.milli, part.amounts, part.mask) for part in parts]
    for least in matcher.sizes() if parts else ():
        for part in parts:
            part.milli, part.mask = matcher.milli(part.role, least), matcher.mask(part.role, least)
            part.amounts = (part.milli * part.request.devices, *part.amounts[1:])
        gang.forget_requested()
        started = over_bounds(gang, gang.requested) is None and _start(board, gang)
        for part, (milli, amounts, mask) in zip(parts, saved, strict=True):
            part.milli, part.amounts, part.mask = milli, amounts, mask
        gang.forget_requested()
        if started:
            return True
    return False


def _horizons(board: Board) -> list[Horizon]:
    """Return the horizons to try, the earliest first."""
    horizons = [Horizon.NOW]
    if board.nodes.leaving:
        horizons.append(Horizon.LEAVING)
    if any(board.nodes.booting):
        horizons.append(Horizon.BOOTING)
    return horizons
