"""Add gangs to a board, remove them, and prepare the board for a cycle."""

from bisect import bisect_left, insort
from collections.abc import Hashable
from operator import attrgetter

from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang, Peers
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.board.order import in_project
from scheduler.engine.explain.feasible import never_fits
from scheduler.engine.fair_share.shares import settle_shares
from scheduler.engine.fair_share.usage_history import settle_past
from scheduler.engine.layout.request_shapes import asks
from scheduler.engine.placement.strategy import settled
from scheduler.engine.plan import Numbers, Reason

by_name = attrgetter("name")


def line_up(board: Board, kind: Hashable, gang: Gang) -> None:
    """With those who ask for the same."""
    peers = board.waiting.get(kind)
    if peers is None:
        peers = board.waiting[kind] = Peers(kind, gang.account, gang.choice)
        judged = board.unschedulable.get(kind)
        peers.asks = asks(board, gang) if judged is None else judged[0]
        board.lines.setdefault(gang.account, []).append(peers)
    gangs = _own_list(peers)
    if gangs and in_project(gangs[-1]) > in_project(gang):
        insort(gangs, gang, key=in_project)
    else:
        gangs.append(gang)
    gang.peers = peers


def unschedulable(board: Board, kind: Hashable, gang: Gang) -> tuple[Reason, Numbers] | None:
    """Return why the pool can never hold a gang of which nothing stands, or None if it might."""
    if kind in board.waiting:
        return None  # one that requests the same passed
    if kind not in board.unschedulable:
        alike = asks(board, gang)
        board.unschedulable[kind] = alike, never_fits(board, gang, alike)
    return board.unschedulable[kind][1]


def line_down(board: Board, gang: Gang) -> None:
    """As if it had never been on this board."""
    peers = gang.peers
    if peers is not None:
        gangs = _own_list(peers)
        del gangs[bisect_left(gangs, in_project(gang), key=in_project)]
        if not peers.gangs:
            del board.waiting[peers.kind]
            board.lines[gang.account].remove(peers)
    for listed in (board.elastic, board.promised, board.ailing):
        at = bisect_left(listed, gang.name, key=by_name)
        if at < len(listed) and listed[at] is gang:
            del listed[at]
    board.kept_back.pop(gang.name, None)
    for account in gang.account.path:
        for kind in KINDS:
            account.asked_for[kind] -= gang.asks_more[kind]
    board.remove(gang)


def _own_list(peers: Peers) -> list[Gang]:
    if peers.shared:
        peers.gangs, peers.shared = list(peers.gangs), False
    return peers.gangs


def begin(board: Board, now: int) -> None:
    """Nothing has been decided yet."""
    board.now, board.kept = now, None
    board.evicted, board.shrunk, board.elsewhere, board.bundles = set(), set(), set(), []
    # Others made way for who has a promise, or it makes way for others.
    board.settled = {gang.name for gang in board.promised}
    board.on_paper = {gang.name for gang in board.promised if not gang.runs}
    board.refusals = {name: {reason: numbers} for name, (reason, numbers) in board.kept_back.items()}
    board.trials = board.changes = board.upheavals = 0
    board.givable.clear()
    board.efforts.clear()
    for peers in board.waiting.values():
        peers.at, peers.found = 0, {}
    board.forget_fragmentation()
    board.pool = settled(board)
    settle_shares(board.pool, board.ledger, board.nodes.capacity())
    settle_past(board.pool, board.ledger, board.nodes.capacity(), now)
