"""Keep reservations of earlier cycles: places that wait for a victim to stop or a node to boot."""

from collections.abc import Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.model import Pod, PodState
from scheduler.engine.plan import Reason


def start_reserved_gangs(board: Board, choice: int) -> None:
    """Start who waited for its place, once all of it is free; say what the others wait for."""
    for gang in board.reserved:
        if gang.choice != choice or gang.name in board.served:
            continue
        reserved = list(_promised(board, gang))
        if not reserved:
            continue
        # A replica that moves has to stop where it was before it starts where it will be.
        late = [(part, pod) for part, pod in reserved if pod.index in part.used or not _is_free(board, pod)]
        if not late and _within_caps(gang):
            board.start_reserved(gang)
            board.excluded.add(gang.name)
            continue
        nodes = {board.nodes.index[pod.node] for _, pod in late}
        booting = sum(board.nodes.booting[i] for i in nodes)
        if booting:
            numbers = {"pods": len(late), "nodes": booting, "booting": booting}
            board.refuse(gang, Reason.WAITING_FOR_SCALE_UP, numbers)
            continue
        late = late or reserved  # a limit leaves no room until the others have stopped
        board.refuse(gang, Reason.WAITING_FOR_VICTIMS, {"pods": len(late), "nodes": len(nodes)})


def _within_caps(gang: Gang) -> bool:
    """Limits hold while those who gave way have not stopped yet, too."""
    requested = [any(part.amounts[kind] for part in gang.parts) for kind in KINDS]
    return all(
        not requested[kind] or not account.leaving[kind]
        or account.allocated[kind] + account.leaving[kind] <= account.limit[kind]
        for account in gang.account.path
        for kind in KINDS
    )  # fmt: skip


def _promised(board: Board, gang: Gang) -> Iterator[tuple[BoardRole, Pod]]:
    for part in gang.parts:
        for pod in part.live.values():
            if pod.state is PodState.RESERVED and not board.is_fresh(pod):
                yield part, pod


def _is_free(board: Board, pod: Pod) -> bool:
    """Its place is taken on the board already: free now means that nothing is leaving there."""
    nodes, i = board.nodes, board.nodes.index[pod.node]
    leaving_pods = nodes.leaving.get(i)
    if not nodes.ready[i] or nodes.pods[i] < 0 or any(nodes.devices[i][device] < 0 for device in pod.devices):
        return False  # oversold: somebody else stands there
    return leaving_pods is None or (
        nodes.cpu[i] >= leaving_pods.cpu
        and nodes.memory[i] >= leaving_pods.memory
        and nodes.pods[i] >= leaving_pods.pods
        and not any(leaving_pods.devices.get(device) for device in pod.devices)
    )
