"""Place a pending gang as if all movable workloads were packed again, largest first."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang
from scheduler.engine.board.nodes import Spot
from scheduler.engine.placement.find_room import open_to
from scheduler.engine.placement.spots import Horizon, pick
from scheduler.engine.preemption.selection import VictimSelection
from scheduler.engine.preemption.victims import Victim

MOST_PODS = 200  # repacking is not tried with more pods, because each of them is placed again

Entry = tuple[Gang, BoardRole, int | None]  # the pod's index; None for replicas of the preemptor


def place_repacked(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Place the arrangement where repacking all victims leaves room for it.

    If the preemptor were placed first, it would take the best room, and larger gangs might find none.
    """
    if len(selection.selected) > MOST_PODS or any(need.scopes for need in arrangement):
        return False
    board, newcomer = selection.board, selection.policy.gang
    start, own = board.mark(), list[tuple[BoardRole, Spot]]()
    for gang, part, index in _largest_first(selection, arrangement):
        spot = _put(board, gang, part, index)
        if spot is None:
            board.rewind(start)
            return False
        if gang is newcomer:
            own.append((part, spot))
    board.rewind(start)
    for part, spot in own:
        board.put(newcomer, part, next(part.free_indices()), spot)
    return True


def smallest_first(victim: Victim) -> tuple[int, int, int, str, int]:
    return (*victim.amounts, victim.gang.name, victim.index)


def _largest_first(selection: VictimSelection, arrangement: Arrangement) -> list[Entry]:
    result: list[Entry] = [
        (victim.gang, part, pod.index) for victim in selection.selected for part, pod in victim.pods
    ]
    result += [(selection.policy.gang, need.part, None) for need in arrangement for _ in range(need.count)]
    result.sort(key=_size, reverse=True)
    return result


def _size(entry: Entry) -> tuple[tuple[int, int, int], str, str, int]:
    gang, part, index = entry
    return part.amounts, gang.name, part.role.name, index or 0


def _put(board: Board, gang: Gang, part: BoardRole, index: int | None) -> Spot | None:
    home = None if gang.simple else board.topology.home(gang, part)
    spot = pick(board, part, Horizon.LEAVING, open_to(board, gang, home))
    index = next(part.free_indices(), None) if index is None else index
    if spot is None or index is None:
        return None
    board.put(gang, part, index, spot)
    return spot
