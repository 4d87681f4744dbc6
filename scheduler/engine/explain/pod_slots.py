"""Check whether only nodes' pod limits or roles' spread limits prevent a gang from starting."""

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Arrangement, Gang, ReplicaRequest
from scheduler.engine.board.ledger import NO_BOUND
from scheduler.engine.placement.find_room import (
    available_nodes,
    difficulty_key,
    place_arrangement,
    place_as_many_as_fit,
)
from scheduler.engine.placement.slots import UsableCapacity
from scheduler.engine.plan import Numbers, Reason


def pod_slot_obstacle(board: Board, gang: Gang, arrangement: Arrangement) -> tuple[Reason, Numbers] | None:
    """Return the reason if only pod limits or spread limits rule out the arrangement, or else None."""
    nodes = board.nodes
    arrangement = tuple(ReplicaRequest(need.part, need.count) for need in arrangement)
    if min(nodes.pods, default=0) < sum(need.count for need in arrangement):
        original, nodes.pods = nodes.pods, [NO_BOUND] * len(nodes.pods)
        fits = _fits_without_limits(board, gang, arrangement)
        nodes.pods = original
        if fits:
            return Reason.WAITING_FOR_CAPACITY, slot_numbers(board, gang, arrangement)
    spread_roles = [need.part for need in arrangement if need.part.replicas_by_node is not None]
    if spread_roles:
        counts = [part.replicas_by_node for part in spread_roles]
        for part in spread_roles:
            part.replicas_by_node = None
        fits = _fits_without_limits(board, gang, arrangement)
        for part, count in zip(spread_roles, counts, strict=True):
            part.replicas_by_node = count
        if fits:
            least = min(part.role.spread_per_node or 0 for part in spread_roles)
            return Reason.FRAGMENTED, {**slot_numbers(board, gang, arrangement), "spread_per_node": least}
    return None


def _fits_without_limits(board: Board, gang: Gang, arrangement: Arrangement) -> bool:
    start = board.log_position()
    fits = place_arrangement(board, gang, arrangement, UsableCapacity.LEAVING)
    board.rewind(start)
    return fits


def slot_numbers(board: Board, gang: Gang, arrangement: Arrangement) -> Numbers:
    """Return the number of requested replicas, and the number of replicas that fit now."""
    start, within = board.log_position(), available_nodes(board, gang)
    requested = sum(need.count for need in arrangement)
    for need in sorted(arrangement, key=difficulty_key):
        place_as_many_as_fit(board, gang, need, UsableCapacity.LEAVING, within)
    result = len(board.moves_since(start))
    board.rewind(start)
    return {
        "resource": "pods",
        "requested": requested,
        "free": result,
        "missing": requested - result,
    }
