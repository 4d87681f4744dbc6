"""Restore removed pods on their previous nodes or on other nodes."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang, ReplicaRequest, enclosing_scopes
from scheduler.engine.board.nodes import Slot
from scheduler.engine.model import Pod
from scheduler.engine.placement.find_room import available_nodes, may_use_held_nodes, place_arrangement
from scheduler.engine.placement.slots import UsableCapacity, pick_slot
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import PlacedPod, Victim

Moved = tuple[Gang, BoardRole, Pod, Slot]


class VictimRestorer:
    """Helper that restores victims one by one and remembers how many replicas of each kind still fit."""

    def __init__(self, selection: VictimSelection) -> None:
        self._board, self._planned_slots = selection.board, selection.planned_slots
        # The free room never increases, because restored pods use capacity.
        self._room: dict[Hashable, int] = {}

    def restore(self, gang: Gang, pods: Sequence[PlacedPod]) -> list[Moved] | None:
        """Restore the pods.

        Return the pods that had to move. If not all pods fit, return None, and the caller must rewind the
        board.
        """
        if self._planned_slots:
            return self._restore_as_planned(gang, pods)
        start = self._board.log_position()
        moved = self._restore_separately(gang, pods)
        if moved is None and not gang.simple:
            self._board.rewind(start)
            moved = _place_together(self._board, gang, pods)
        return moved

    def _restore_as_planned(self, gang: Gang, pods: Sequence[PlacedPod]) -> list[Moved]:
        moved: list[Moved] = []
        for part, pod in pods:
            slot = self._planned_slots[id(pod)]
            if (slot.node, slot.devices) != (self._board.nodes.index[pod.node], pod.devices):
                moved.append((gang, part, pod, slot))
            self._board.place_pod(gang, part, pod.index, slot)
        return moved

    def _restore_separately(self, gang: Gang, pods: Sequence[PlacedPod]) -> list[Moved] | None:
        """Restore the pods one by one, on their previous nodes if possible.

        Return the pods that had to move, or None if not all pods fit.
        """
        board = self._board
        away = [(part, pod) for part, pod in pods if not restore_in_place(board, gang, part, pod)]
        moved: list[Moved] = []
        if self._room and self._cannot_fit(gang, away):
            return None
        for part, pod in away:
            slot = _find_other_slot(board, gang, part, pod)
            if slot is None:
                self._cache_free_slots(gang, pods, len(pods) - len(away) + len(moved))
                return None
            moved.append((gang, part, pod, slot))
            board.place_pod(gang, part, pod.index, slot)
        return moved

    def _cache_free_slots(self, gang: Gang, pods: Sequence[PlacedPod], fitting: int) -> None:
        kinds = {self._replica_kind(gang, part, pod) for part, pod in pods}
        if gang.simple and len(kinds) == 1 and all(part.replicas_by_node is None for part, _ in pods):
            self._room[kinds.pop()] = fitting

    def _cannot_fit(self, gang: Gang, away: Sequence[PlacedPod]) -> bool:
        if len(away) == 1:
            return self._room.get(self._replica_kind(gang, *away[0]), 1) < 1
        requested = Counter(self._replica_kind(gang, part, pod) for part, pod in away)
        return any(count > self._room.get(kind, count) for kind, count in requested.items())

    def _replica_kind(self, gang: Gang, part: BoardRole, pod: Pod) -> Hashable:
        return (
            part.request,
            part.mask,
            self._board.is_newly_placed(pod),
            may_use_held_nodes(self._board, gang),
        )


def restore_in_place(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> bool:
    """Restore a pod on its previous node if possible, and return whether it was restored."""
    nodes, i = board.nodes, board.nodes.index[pod.node]
    request, apart = part.request, part.role.spread_per_node
    if part.replicas_by_node is not None and apart is not None and part.replicas_by_node.get(i, 0) >= apart:
        return False
    allowed_nodes = None if gang.simple else board.topology.allowed_nodes(gang, part)
    if allowed_nodes is not None and i not in allowed_nodes:
        return False
    if (
        nodes.cpu[i] < request.limit_cpu
        or nodes.memory[i] < request.limit_memory_mib
        or nodes.pods[i] < 1
        or any(nodes.devices[i][device] < pod.milli for device in pod.devices)
    ):
        return False
    board.place_pod(gang, part, pod.index, Slot(i, pod.devices, pod.milli))
    return True


def _find_other_slot(board: Board, gang: Gang, part: BoardRole, pod: Pod) -> Slot | None:
    allowed_nodes = None if gang.simple else board.topology.allowed_nodes(gang, part)
    inside = available_nodes(board, gang, allowed_nodes)
    slots = (pick_slot(board, part, capacity, inside) for capacity in _capacities_to_try(board, [pod]))
    return next((slot for slot in slots if slot is not None), None)


def _capacities_to_try(board: Board, pods: Iterable[Pod]) -> Sequence[UsableCapacity]:
    fresh = any(board.is_newly_placed(pod) for pod in pods)
    return (UsableCapacity.NOW, UsableCapacity.LEAVING) if fresh else (UsableCapacity.LEAVING,)


def _place_together(board: Board, gang: Gang, pods: Sequence[PlacedPod]) -> list[Moved] | None:
    """Place all pods of a gang together.

    Return the pods that have moved, or None if the pods cannot be placed together.
    """
    if gang.pod_count:
        return None
    by_part: dict[BoardRole, list[Pod]] = {}
    for part, pod in pods:
        by_part.setdefault(part, []).append(pod)
    arrangement = tuple(
        ReplicaRequest(part, len(placed), enclosing_scopes(gang, part)) for part, placed in by_part.items()
    )
    start = board.log_position()
    capacities = _capacities_to_try(board, (pod for _, pod in pods))
    if not any(place_arrangement(board, gang, arrangement, capacity) for capacity in capacities):
        return None
    slots: dict[BoardRole, list[Slot]] = {}
    for move in board.moves_since(start):
        slots.setdefault(move.part, []).append(Slot(move.node, move.pod.devices, move.pod.milli))
    board.rewind(start)
    moved = []
    for part, placed in by_part.items():
        for pod, slot in zip(placed, slots[part], strict=True):
            board.place_pod(gang, part, pod.index, slot)
            if (pod.node, pod.devices) != (board.nodes.nodes[slot.node].name, slot.devices):
                moved.append((gang, part, pod, slot))
    return moved


def group_victims(selection: VictimSelection) -> list[tuple[Gang, tuple[PlacedPod, ...], list[Victim]]]:
    """Return the selected victims, grouped by gang, costliest first."""
    result: list[tuple[Gang, tuple[PlacedPod, ...], list[Victim]]] = []
    bound: dict[Gang, int] = {}
    for victim in reversed(selection.selected):
        gang = victim.gang
        if selection.policy.moves_only and not gang.simple and not gang.pod_count:
            if gang in bound:
                _, pods, victims = result[bound[gang]]
                result[bound[gang]] = gang, (*pods, *victim.pods), [*victims, victim]
                continue
            bound[gang] = len(result)
        result.append((gang, victim.pods, [victim]))
    return result
