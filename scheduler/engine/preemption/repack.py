"""Place a pending gang by repacking all movable workloads, largest first."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, BoardRole, Gang
from scheduler.engine.board.nodes import Slot
from scheduler.engine.placement.find_room import available_nodes
from scheduler.engine.placement.slots import UsableCapacity, pick_slot
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import Victim

MAX_PODS = 200  # maximum number of pods to repack; limited because each pod is placed again

Entry = tuple[Gang, BoardRole, int | None]  # the index is None for replicas of the preemptor


def place_repacked(selection: VictimSelection, arrangement: Arrangement) -> bool:
    """Place the arrangement together with all victims, largest first. Return False if that fails."""
    if len(selection.selected) > MAX_PODS or any(need.scopes for need in arrangement):
        return False
    board, preemptor = selection.board, selection.policy.gang
    start, own = board.log_position(), list[tuple[BoardRole, Slot]]()
    # The preemptor is not placed first, because it could take the only room for a larger gang.
    for gang, part, index in _sort_largest_first(selection, arrangement):
        slot = _place_pod(board, gang, part, index)
        if slot is None:
            board.rewind(start)
            return False
        if gang is preemptor:
            own.append((part, slot))
    board.rewind(start)
    for part, slot in own:
        board.place_pod(preemptor, part, next(part.free_indices()), slot)
    return True


def size_sort_key(victim: Victim) -> tuple[int, int, int, str, int]:
    return (*victim.amounts, victim.gang.name, victim.index)


def _sort_largest_first(selection: VictimSelection, arrangement: Arrangement) -> list[Entry]:
    result: list[Entry] = [
        (victim.gang, part, pod.index) for victim in selection.selected for part, pod in victim.pods
    ]
    result += [(selection.policy.gang, need.part, None) for need in arrangement for _ in range(need.count)]
    result.sort(key=_sort_key, reverse=True)
    return result


def _sort_key(entry: Entry) -> tuple[tuple[int, int, int], str, str, int]:
    gang, part, index = entry
    return part.amounts, gang.name, part.role.name, index or 0


def _place_pod(board: Board, gang: Gang, part: BoardRole, index: int | None) -> Slot | None:
    allowed_nodes = None if gang.simple else board.topology.allowed_nodes(gang, part)
    slot = pick_slot(board, part, UsableCapacity.LEAVING, available_nodes(board, gang, allowed_nodes))
    index = next(part.free_indices(), None) if index is None else index
    if slot is None or index is None:
        return None
    board.place_pod(gang, part, index, slot)
    return slot
