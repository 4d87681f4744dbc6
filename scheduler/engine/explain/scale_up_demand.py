"""Count the extra replicas of elastic gangs that would fit on booting or additional nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from scheduler.engine.actions.scale_up import ScaleUpQueue, ScaleUpStep, is_step_allowed
from scheduler.engine.board.board import Board
from scheduler.engine.board.eligible import is_in_backoff
from scheduler.engine.board.gang import BoardRole, Gang, ReplicaRequest
from scheduler.engine.board.ledger import Ledger
from scheduler.engine.board.matching import node_constraints
from scheduler.engine.placement.find_room import place_replicas
from scheduler.engine.placement.slots import UsableCapacity

MAX_REPLICAS = 256  # maximum replicas counted per pool and cycle; later cycles count more


class UnplacedReplicas(NamedTuple):
    """A role's replicas that are not on any of the board's nodes."""

    gang: Gang
    part: BoardRole
    replicas: int


def gangs_to_scale_up(board: Board) -> list[Gang]:
    """Return the elastic gangs that meet their minimum and may cause the pool to add nodes."""
    return [
        gang
        for gang in board.elastic_gangs
        if gang.workload.scale_up_adds_nodes
        and gang.is_running
        and gang.simple
        and gang.meets_minimum
        and not is_in_backoff(board, gang.workload)
        and gang.name not in board.cycle.reserved_only
        and gang.name not in board.cycle.evicted
        and not any(part.completed for part in gang.parts)
    ]


def max_scale_up(gangs: Sequence[Gang]) -> int:
    """Return how many replicas the gangs could add, at most `MAX_REPLICAS`."""
    missing = sum(part.role.max - part.replica_count for gang in gangs for part in gang.parts)
    return min(MAX_REPLICAS, max(0, missing))


def simulate_scale_up(
    board: Board, new_board: Board, gangs: Sequence[Gang], pending_replicas: Sequence[UnplacedReplicas]
) -> list[UnplacedReplicas]:
    """Return extra replicas that fit on booting nodes of `board` or on the nodes of `new_board`.

    The gangs furthest from their maximum come first. `pending_replicas` are already on `new_board` and count
    towards limits. The caller must rewind both boards.
    """
    with _temporary_charges() as count:
        for pending in pending_replicas:
            count(pending)
        queue, failed_kinds, result = ScaleUpQueue(gangs), set[object](), list[UnplacedReplicas]()
        left = MAX_REPLICAS
        while left > 0 and (step := queue.next_step()) is not None:
            kind = tuple(
                (need.part.request, node_constraints(need.part.role), need.part.project)
                for need in step.arrangement
            )
            if kind in failed_kinds or not is_step_allowed(step, deserved_only=False):
                continue
            placed = _place_step(board, new_board, step)
            if placed is None:
                if all(need.part.replicas_by_node is None for need in step.arrangement):
                    failed_kinds.add(kind)
                continue
            for extra in placed.on_new_nodes:
                # Count the replicas as running until the simulation ends.
                extra.part.completed += extra.replicas
                count(extra)
            left -= sum(need.count for need in step.arrangement)
            result += [*placed.on_booting, *placed.on_new_nodes]
            queue.refresh_steps(step.gang)
        for gang in gangs:
            for part in gang.parts:
                part.completed = 0
    return result


class _StepPlacement(NamedTuple):
    on_booting: list[UnplacedReplicas]
    on_new_nodes: list[UnplacedReplicas]


def _place_step(board: Board, new_board: Board, step: ScaleUpStep) -> _StepPlacement | None:
    """Place one scale-up step. If it does not fit, return None and leave both boards unchanged."""
    gang, placed = step.gang, _StepPlacement([], [])
    before, new_board_mark = board.log_position(), new_board.log_position()
    twin = new_board.gangs.get(gang.name) or new_board.add(gang.workload, 0, ())
    for need in step.arrangement:
        part = need.part
        for _ in range(need.count):
            mark = board.log_position()
            if place_replicas(board, gang, ReplicaRequest(part, 1), UsableCapacity.BOOTING, None):
                if board.nodes.booting[board.moves_since(mark)[0].node]:
                    placed.on_booting.append(UnplacedReplicas(gang, part, 1))
            elif place_replicas(
                new_board, twin, ReplicaRequest(twin.find_part(part.role.name), 1), UsableCapacity.NOW, None
            ):
                placed.on_new_nodes.append(UnplacedReplicas(gang, part, 1))
            else:
                board.rewind(before)
                new_board.rewind(new_board_mark)
                return None
    return placed


@contextmanager
def _temporary_charges() -> Iterator[Callable[[UnplacedReplicas], None]]:
    """Yield a function for charging replicas to their queues. All charges are undone on exit."""
    charged: list[UnplacedReplicas] = []

    def charge(unplaced: UnplacedReplicas, sign: int) -> None:
        gpu, cpu, memory = (sign * unplaced.replicas * amount for amount in unplaced.part.amounts)
        Ledger.charge(unplaced.gang.account, gpu, cpu, memory, unplaced.gang.non_preemptible)

    def charge_until_exit(unplaced: UnplacedReplicas) -> None:
        charge(unplaced, 1)
        charged.append(unplaced)

    try:
        yield charge_until_exit
    finally:
        for unplaced in charged:
            charge(unplaced, -1)
