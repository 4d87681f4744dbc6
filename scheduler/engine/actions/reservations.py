"""Start gangs whose capacity was reserved in an earlier cycle and is free now."""

from collections.abc import Iterator, Sequence

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.model import Pod, PodState
from scheduler.engine.plan import Numbers, Reason

ReservedPod = tuple[BoardRole, Pod]


def start_reserved_gangs(board: Board, choice: int) -> None:
    """Start the gangs whose reserved capacity is free now, and reject the other gangs with reservations."""
    for gang in board.reserved_gangs:
        if gang.choice != choice or gang.name in board.served:
            continue
        if gang.name in board.cycle.started_reservations:  # an earlier action run started the gang
            continue
        reserved = list(_reserved_pods(board, gang))
        if not reserved:
            continue
        # A moved replica must stop on its old node before it starts on its new node.
        blocked = [
            (part, pod)
            for part, pod in reserved
            if pod.index in part.used or not _is_capacity_free(board, pod)
        ]
        if not blocked and _is_within_limits(gang):
            board.start_reserved_pods(gang)
            continue
        with board.trial(gang, default_reason=None) as trial:
            trial.reject(*_pending_reason(board, reserved, blocked))


def _pending_reason(
    board: Board, reserved: Sequence[ReservedPod], blocked: Sequence[ReservedPod]
) -> tuple[Reason, Numbers]:
    """Return why a gang with reserved capacity cannot start yet.

    `blocked` contains the pods whose capacity is not free yet.
    """
    nodes = {board.nodes.index[pod.node] for _, pod in blocked}
    booting = sum(board.nodes.booting[i] for i in nodes)
    if booting:
        return Reason.WAITING_FOR_SCALE_UP, {"pods": len(blocked), "nodes": booting, "booting": booting}
    return Reason.WAITING_FOR_VICTIMS, {"pods": len(blocked or reserved), "nodes": len(nodes)}


def _is_within_limits(gang: Gang) -> bool:
    """Return whether the gang's queues are within limits, including pods that are still stopping."""
    requested = [any(part.amounts[kind] for part in gang.parts) for kind in KINDS]
    return all(
        not requested[kind] or not account.leaving[kind]
        or account.allocated[kind] + account.leaving[kind] <= account.limit[kind]
        for account in gang.account.path
        for kind in KINDS
    )  # fmt: skip


def _reserved_pods(board: Board, gang: Gang) -> Iterator[ReservedPod]:
    for part in gang.parts:
        for pod in part.pods_in_order:
            if pod.state is PodState.RESERVED and not board.is_newly_placed(pod):
                yield part, pod


def _is_capacity_free(board: Board, pod: Pod) -> bool:
    nodes, i = board.nodes, board.nodes.index[pod.node]
    leaving_pods = nodes.leaving.get(i)
    if not nodes.ready[i] or nodes.pods[i] < 0 or any(nodes.devices[i][device] < 0 for device in pod.devices):
        return False  # another pod already uses the reserved capacity
    return leaving_pods is None or (
        nodes.cpu[i] >= leaving_pods.cpu
        and nodes.memory[i] >= leaving_pods.memory
        and nodes.pods[i] >= leaving_pods.pods
        and not any(leaving_pods.devices.get(device) for device in pod.devices)
    )
