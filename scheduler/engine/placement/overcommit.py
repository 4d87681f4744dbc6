"""Start CPU-only workloads based on their requests if no node has room for the workloads' CPU and memory
limits.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import exceeded_bound, find_pending_groups
from scheduler.engine.board.gang import Gang, arrangements
from scheduler.engine.board.order import PendingOrder
from scheduler.engine.placement.find_room import place_arrangement
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.plan import Kind

OVERCOMMIT_MESSAGE = "overcommitted: its requests fit, its limits do not"


def place_overcommitted(board: Board, choice: int) -> None:
    order = PendingOrder(
        board,
        [group for group in find_pending_groups(board, choice) if may_overcommit(group.gangs[group.at])],
    )
    for group, gang in order:
        with board.trial(gang, default_reason=None) as trial:
            if exceeded_bound(gang, gang.requested) is None and _place_by_requests(board, gang):
                # Retry other gangs, because nodes held for this gang become free and this gang may scale up.
                trial.accept(Kind.START, OVERCOMMIT_MESSAGE, retry=True)
            else:
                order.skip_group(group)


def may_overcommit(gang: Gang) -> bool:
    """Return whether no role requests a GPU and some role has a limit above its request."""
    has_slack = False
    for part in gang.parts:
        request = part.request
        if request.devices:
            return False
        if request.limit_cpu > request.cpu or request.limit_memory_mib > request.memory_mib:
            has_slack = True
    return has_slack


def _place_by_requests(board: Board, gang: Gang) -> bool:
    with ignoring_limits(gang):
        return any(
            place_arrangement(board, gang, arrangement, UsableCapacity.NOW)
            for arrangement in arrangements(gang)
        )


@contextmanager
def ignoring_limits(*gangs: Gang) -> Iterator[None]:
    """Context manager in which the gangs are placed by their requests instead of their limits."""
    parts = [part for gang in gangs for part in gang.parts]
    for part in parts:
        part.ignores_limits = True
    try:
        yield
    finally:
        for part in parts:
            part.ignores_limits = False
