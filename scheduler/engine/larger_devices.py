"""Start a gang that requests device memory on larger devices."""

from collections.abc import Callable

from scheduler.engine.board import Board
from scheduler.engine.eligible import over_bounds
from scheduler.engine.gang import Gang

Start = Callable[[Board, Gang], bool]


def starts_on_larger_devices(board: Board, gang: Gang, start: Start) -> bool:
    """Put it on the board where its queues' bounds hold for it; size by size, the smallest first."""
    parts = [part for part in gang.parts if part.request.gpu_memory_mib]
    matcher = board.matcher
    as_told = [(part.milli, part.amounts, part.mask) for part in parts]
    for least in matcher.sizes() if parts else ():
        for part in parts:
            part.milli, part.mask = matcher.milli(part.role, least), matcher.mask(part.role, least)
            part.amounts = (part.milli * part.request.devices, *part.amounts[1:])
        gang.forget_asked()
        started = over_bounds(gang, gang.asked) is None and start(board, gang)
        for part, (milli, amounts, mask) in zip(parts, as_told, strict=True):
            part.milli, part.amounts, part.mask = milli, amounts, mask
        gang.forget_asked()
        if started:
            return True
    return False
