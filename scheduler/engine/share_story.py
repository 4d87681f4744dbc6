"""Here we divide a pool's capacity once more, only to tell how its queues' shares come about."""

from scheduler.engine.layout import Layout
from scheduler.engine.model import Snapshot
from scheduler.engine.share_steps import Division
from scheduler.engine.shares import settle_shares


def divisions(snapshot: Snapshot, pool: str) -> list[Division]:
    """The top first, resource by resource; none where there is no such pool."""
    board = Layout(snapshot).boards.get(pool)
    story: list[Division] = []
    if board is not None:
        settle_shares(board.pool, board.ledger, board.nodes.capacity(), story)
    return story
