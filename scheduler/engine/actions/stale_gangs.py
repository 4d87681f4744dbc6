"""Stop gangs that lost replicas and stayed below their minimum for longer than the grace period."""

from collections.abc import Iterator

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardGroup, BoardRole, Gang, leaves, lost_gpu_seconds_of
from scheduler.engine.board.ledger import amounts
from scheduler.engine.model import Pod, PodState
from scheduler.engine.plan import Eviction, Kind, Reason, Standing


def stale_gangs(board: Board, choice: int) -> None:
    for gang in board.incomplete:
        if gang.choice != choice or gang.name in board.cycle.evicted or not gang.stands:
            continue
        broken = list(_broken(board, gang.root)) if gang.runs else []  # reservations alone cannot be stale
        if broken and _overdue(board, gang):
            with board.trial(gang, otherwise=Reason.WAITING_FOR_GANG) as trial:
                trial.accept(
                    Kind.STALE_GANG,
                    "below its minimum for longer than the grace period",
                    (_stop(board, gang, broken),),
                )


def _broken(board: Board, node: BoardGroup | BoardRole) -> Iterator[tuple[BoardRole, Pod]]:
    """Yield the pods of the outermost groups that are not whole."""
    if not _is_whole(board, node):
        for part in leaves(node):
            for pod in part.in_order:
                yield part, pod
    elif isinstance(node, BoardGroup):
        for child in node.children:
            yield from _broken(board, child)


def _is_whole(board: Board, node: BoardGroup | BoardRole) -> bool:
    """Return whether enough replicas run or wait for victims. Replicas on booting nodes do not count."""
    if isinstance(node, BoardGroup):
        return sum(_is_whole(board, child) for child in node.children) >= node.need
    nodes = board.nodes
    awaited = sum(not nodes.ready[nodes.index[pod.node]] for pod in node.live.values()
                  if pod.state is PodState.RESERVED)  # fmt: skip
    return node.count - awaited >= node.role.min


def _overdue(board: Board, gang: Gang) -> bool:
    own = gang.workload.stale_gang_grace
    grace = board.pool.stale_gang_grace if own is None else own
    since = gang.workload.stale_since
    return grace >= 0 and board.now - (board.now if since is None else since) >= grace


def _stop(board: Board, gang: Gang, pods: list[tuple[BoardRole, Pod]]) -> Eviction:
    before = {account: tuple(account.allocated) for account in gang.account.path}
    lost_gpu_seconds = sum(lost_gpu_seconds_of(gang, pod, board.now) for _, pod in pods)
    for part, pod in pods:
        board.drop(gang, part, pod)
    return Eviction(
        Kind.STALE_GANG,
        gang.name,
        None,
        "the gang stayed below its minimum for longer than its grace period",
        tuple((pod.role, pod.index) for _, pod in pods),
        whole=not gang.stands,
        victim=tuple(
            Standing(
                account.name,
                account.entitlement.quota,
                amounts(account.share),
                amounts(before[account]),
                amounts(account.allocated),
            )
            for account in gang.account.path
        ),
        lost_gpu_seconds=lost_gpu_seconds,
    )
