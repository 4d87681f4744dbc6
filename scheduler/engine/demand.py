"""Here we count what waits for capacity that limits allow: what an autoscaler should know."""

from collections.abc import Collection, Sequence

from berth.core.amounts import Amounts
from scheduler.engine.board import Board
from scheduler.engine.fresh import could_add, fresh_nodes
from scheduler.engine.gang import Gang, Want, amounts_of, ways
from scheduler.engine.ledger import Account, within
from scheduler.engine.placement import place
from scheduler.engine.plan import Demand, Reason, UnmetShape
from scheduler.engine.spots import Horizon

ABOUT_CAPACITY = {Reason.WAITING_FOR_CAPACITY, Reason.FRAGMENTED, Reason.TOPOLOGY}


def unmet(board: Board, passed_on: Collection[str]) -> tuple[Demand, set[str]]:
    """The pool's unmet demand, and the names of those that so many more nodes would serve.

    `passed_on` names workloads that another pool, which they prefer, counts already.
    """
    gangs = _allowed([gang for gang in _in_order(board) if gang.name not in passed_on])
    shapes = tuple(
        UnmetShape(gang.name, want.part.role.name, want.count, Amounts(*want.part.amounts),
                   want.part.request.devices, gang=True)
        for gang in gangs for want in next(ways(gang))
    )  # fmt: skip
    wanted, served = _nodes_wanted(board, gangs)
    queued = sum(shape.amounts.gpu * shape.replicas for shape in shapes)
    return Demand(board.pool.name, queued, wanted, shapes), served


def _in_order(board: Board) -> list[Gang]:
    return [
        board.gangs[name]
        for name in board.line
        if name in board.refusals and ABOUT_CAPACITY & board.refusals[name].keys()
    ]


def _allowed(gangs: Sequence[Gang]) -> list[Gang]:
    """Those that bounds allow all at once, in order."""
    allowed = []
    held = {account: list(account.allocated) for gang in gangs for account in gang.account.path}
    firm = {account: list(account.firm) for account in held}
    for gang in gangs:
        asked = amounts_of(next(ways(gang)))
        path: tuple[Account, ...] = gang.account.path
        if not all(within(held[account], account.cap, asked) for account in path):
            continue
        if gang.firm and not all(within(firm[account], account.quota, asked) for account in path):
            continue
        for account in path:
            for kind, amount in enumerate(asked):
                held[account][kind] += amount
                firm[account][kind] += amount * gang.firm
        allowed.append(gang)
    return allowed


def _nodes_wanted(board: Board, gangs: Sequence[Gang]) -> tuple[int, set[str]]:
    """Fill what is free, then fresh nodes one after the other; a gang that does not fit asks for none."""
    more = could_add(board)
    replicas = sum(want.count for gang in gangs for want in next(ways(gang)))
    if not more or not replicas:
        return 0, set()
    fresh = Board(board.pool, board.now, fresh_nodes(board, min(more, replicas)), board.queues, set())
    start, served = board.mark(), set()
    for gang in gangs:
        before, before_fresh = board.mark(), fresh.mark()
        if _fill(board, fresh, gang):
            served.add(gang.name)
        else:
            board.rewind(before)
            fresh.rewind(before_fresh)
    board.rewind(start)
    used = sum(fresh.nodes.pods[i] < node.max_pods for i, node in enumerate(fresh.nodes.nodes))
    return used, served


def _fill(board: Board, fresh: Board, gang: Gang) -> bool:
    twin = fresh.add(gang.workload, 0, ())
    for want in next(ways(gang)):
        new = twin.part(want.part.role.name)
        for _ in range(want.count):
            if place(board, gang, Want(want.part, 1), Horizon.BOOTING, None):
                continue
            if not place(fresh, twin, Want(new, 1), Horizon.NOW, None):
                return False
    return True
