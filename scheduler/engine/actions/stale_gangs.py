"""Stop gangs that have been below their minimum for longer than the grace period."""

from collections.abc import Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardGroup, BoardRole, Gang, compute_lost_gpu_seconds, leaf_parts
from scheduler.engine.board.ledger import to_amounts
from scheduler.engine.model import Pod, PodState
from scheduler.engine.plan import Eviction, Kind, QueueImpact, Reason


def stop_stale_gangs(board: Board, choice: int) -> None:
    for gang in board.incomplete_gangs:
        if gang.choice != choice or gang.name in board.cycle.evicted or not gang.has_pods:
            continue
        # A gang that has only reservations is not stale.
        broken = list(_pods_below_minimum(board, gang.root)) if gang.is_running else []
        if broken and _is_overdue(board, gang):
            with board.trial(gang, default_reason=Reason.WAITING_FOR_GANG) as trial:
                trial.accept(
                    Kind.STALE_GANG,
                    "below its minimum for longer than the grace period",
                    (_stop_pods(board, gang, broken),),
                )


def _pods_below_minimum(board: Board, node: BoardGroup | BoardRole) -> Iterator[tuple[BoardRole, Pod]]:
    """Yield the pods of the outermost groups and roles that are below their minimum."""
    if not _meets_minimum(board, node):
        for part in leaf_parts(node):
            for pod in part.pods_in_order:
                yield part, pod
    elif isinstance(node, BoardGroup):
        for child in node.children:
            yield from _pods_below_minimum(board, child)


def _meets_minimum(board: Board, node: BoardGroup | BoardRole) -> bool:
    """Return whether the minimum is met without the replicas that are reserved on unready nodes."""
    if isinstance(node, BoardGroup):
        return sum(_meets_minimum(board, child) for child in node.children) >= node.need
    nodes = board.nodes
    not_ready = sum(not nodes.ready[nodes.index[pod.node]] for pod in node.live.values()
                  if pod.state is PodState.RESERVED)  # fmt: skip
    return node.replica_count - not_ready >= node.role.min


def _is_overdue(board: Board, gang: Gang) -> bool:
    own = gang.workload.stale_gang_grace
    grace = board.pool.stale_gang_grace if own is None else own
    since = gang.workload.stale_since
    return grace >= 0 and board.now - (board.now if since is None else since) >= grace


def _stop_pods(board: Board, gang: Gang, pods: list[tuple[BoardRole, Pod]]) -> Eviction:
    before = {account: tuple(account.allocated) for account in gang.account.path}
    lost_gpu_seconds = sum(compute_lost_gpu_seconds(gang, pod, board.now) for _, pod in pods)
    for part, pod in pods:
        board.remove_pod(gang, part, pod)
    return Eviction(
        Kind.STALE_GANG,
        gang.name,
        None,
        "the gang stayed below its minimum for longer than its grace period",
        tuple((pod.role, pod.index) for _, pod in pods),
        whole=not gang.has_pods,
        victim=tuple(
            QueueImpact(
                account.name,
                account.pool_quota.quota,
                to_amounts(account.share),
                to_amounts(before[account]),
                to_amounts(account.allocated),
            )
            for account in gang.account.path
        ),
        lost_gpu_seconds=lost_gpu_seconds,
    )
