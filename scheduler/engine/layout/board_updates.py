"""Add gangs to a pool's board, remove gangs, and prepare the board for a cycle."""

from bisect import bisect_left, insort
from collections.abc import Hashable
from operator import attrgetter

from scheduler.engine.board.board import Board
from scheduler.engine.board.cycle_state import CycleState
from scheduler.engine.board.gang import Gang, PendingGroup
from scheduler.engine.board.ledger import KINDS
from scheduler.engine.board.order import gang_sort_key
from scheduler.engine.fair_share.department_turns import update_turns
from scheduler.engine.fair_share.shares import update_shares
from scheduler.engine.placement.strategy import resolve_strategies

by_name = attrgetter("name")


def enqueue(board: Board, kind: tuple[Hashable, ...], gang: Gang) -> None:
    """Add a gang to the pending group with the key `kind`, which begins with the request key."""
    group = board.pending_groups.get(kind)
    if group is None:
        group = board.pending_groups[kind] = PendingGroup(kind, gang.account, gang.choice)
        group.request_key = kind[0]
        board.groups_by_project.setdefault(gang.account, []).append(group)
    gangs = _copy_gangs_if_shared(group)
    if gangs and gang_sort_key(gangs[-1]) > gang_sort_key(gang):
        insort(gangs, gang, key=gang_sort_key)
    else:
        gangs.append(gang)
    gang.group = group


def remove_gang(board: Board, gang: Gang) -> None:
    """Remove a gang from the board and from all of the board's lists of gangs."""
    group = gang.group
    if group is not None:
        gangs = _copy_gangs_if_shared(group)
        del gangs[bisect_left(gangs, gang_sort_key(gang), key=gang_sort_key)]
        if not group.gangs:
            del board.pending_groups[group.kind]
            board.groups_by_project[gang.account].remove(group)
    for listed in (board.elastic_gangs, board.reserved_gangs, board.incomplete_gangs):
        at = bisect_left(listed, gang.name, key=by_name)
        if at < len(listed) and listed[at] is gang:
            del listed[at]
    board.ineligible.pop(gang.name, None)
    for account in gang.account.path:
        for kind in KINDS:
            account.pending_request[kind] -= gang.extra_request[kind]
    board.remove(gang)


def _copy_gangs_if_shared(group: PendingGroup) -> list[Gang]:
    if group.shared:
        group.gangs, group.shared = list(group.gangs), False
    return group.gangs


def start_cycle(board: Board, now: int) -> None:
    """Reset the previous cycle's decisions and recompute the fair shares."""
    board.now = now
    board.cycle = CycleState(
        rejections={name: {reason: numbers} for name, (reason, numbers) in board.ineligible.items()},
        reserved_only={gang.name for gang in board.reserved_gangs if not gang.is_running},
        # Preemptors with a reservation, and workloads that are being moved.
        excluded={gang.name for gang in board.reserved_gangs},
    )
    for group in board.pending_groups.values():
        group.at, group.reasons = 0, {}
    board.discard_fragmentation_index()
    board.pool = resolve_strategies(board)
    update_shares(board.pool, board.ledger, board.nodes.capacity())
    update_turns(board)
