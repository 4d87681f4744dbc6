"""Recompute the division of a pool's capacity to explain its fair shares."""

from collections.abc import Mapping, Sequence

from scheduler.engine.board.ledger import Ledger
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.fair_share.shares import divide_shares, update_shares
from scheduler.engine.fair_share.trace import Division
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Node, Pool, Queue, Snapshot

NOTHING = (0, 0, 0)


def divisions(snapshot: Snapshot, pool: str) -> list[Division]:
    """Return how each of the pool's resources was divided among queues, top level first.

    The list is empty for an unknown pool.
    """
    board = Layout(snapshot).boards.get(pool)
    recorded: list[Division] = []
    if board is not None:
        update_shares(board.pool, board.ledger, board.nodes.capacity(), recorded)
    return recorded


def divide_requests(
    pool: Pool, nodes: Sequence[Node], queues: Sequence[Queue], requested: Mapping[str, Sequence[int]]
) -> list[Division]:
    """Return how the pool's resources are divided among queues with the given requests, which include their
    allocations.
    """
    ledger, recorded = Ledger(pool, queues), list[Division]()
    for account in ledger.accounts.values():
        account.requested = list(requested.get(account.name, NOTHING))
    divide_shares(pool, ledger, Nodes(nodes, pool.cpu_load_limit).capacity(), recorded)
    return recorded
