"""Update the layout of an earlier snapshot instead of building a new one.

The layout carries the state of the cluster and no decisions: each cycle gets boards that equal newly built
ones, so the plan is the same with or without an earlier layout.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import compress
from operator import attrgetter, is_, is_not

from scheduler.engine.board.board import Board
from scheduler.engine.board.ledger import NO_CLAIM
from scheduler.engine.layout.difference import different
from scheduler.engine.layout.layout import Layout, is_finished, reservations_by_workload
from scheduler.engine.layout.lineup import start_cycle
from scheduler.engine.layout.soundness import overallocated, unmatched_reservations
from scheduler.engine.model import Entitlement, Queue, Snapshot, Workload

_itself = attrgetter(*(each.name for each in fields(Queue) if each.name != "entitlements"))
_unused = attrgetter(*(each.name for each in fields(Entitlement) if each.name != "usage"))


def layout_for(snapshot: Snapshot, carried: Layout | None) -> Layout:
    """Return the carried layout, brought up to date with the snapshot.

    If nodes, pools or entitlements changed or input was inconsistent, return a new layout instead.
    """
    if carried is None or carried.notes or not _is_near(carried.snapshot, snapshot):
        return Layout(snapshot)
    _bring_up_to_date(carried, snapshot)
    return carried


def _is_near(before: Snapshot, now: Snapshot) -> bool:
    return (
        before.pools == now.pools
        and before.nodes == now.nodes
        and len(before.queues) == len(now.queues)
        and (all(map(is_, before.queues, now.queues)) or all(map(_are_alike, before.queues, now.queues)))
    )


def _are_alike(one: Queue, other: Queue) -> bool:
    """Return whether two queues are equal except for their usage."""
    entitlements, other_entitlements = one.entitlements, other.entitlements
    return one is other or (
        _itself(one) == _itself(other)
        and entitlements.keys() == other_entitlements.keys()
        and all(_unused(result) == _unused(other_entitlements[pool]) for pool, result in entitlements.items())
    )


def _bring_up_to_date(layout: Layout, snapshot: Snapshot) -> None:
    before = layout.snapshot
    was, now = different(before.workloads, snapshot.workloads)
    stirred = {name for board in layout.boards.values() for name in board.reset()}
    reserved = reservations_by_workload(snapshot)
    stirred |= layout.reserved.keys() | reserved.keys()
    if before.now != snapshot.now:
        stirred |= layout.time_dependent
    finished = {name for name, workload in now.items() if workload.pods and is_finished(workload)}
    if was.keys() != now.keys() or finished != layout.finished & was.keys():
        stirred |= layout.with_dependencies
    for board in layout.boards.values():
        board.nodes.touched = []
    again = {**_as_they_stand(layout, stirred - was.keys()), **now}
    for name in (*stirred, *was):
        layout.remove(name)
    layout.snapshot, layout.now, layout.reserved = snapshot, snapshot.now, reserved
    layout.workload_names.difference_update(was)  # in place, because there are many names
    layout.workload_names.update(now)
    layout.finished.difference_update(was)
    layout.finished.update(finished)
    for workload in again.values():
        layout.add(workload)
    layout.notes += unmatched_reservations(snapshot.reservations, layout.workload_names)
    layout.served.clear()
    for board in layout.boards.values():
        _take_over_usage(board, before.queues, snapshot.queues)
        layout.notes += overallocated(board.nodes, board.nodes.touched)  # other nodes are unchanged
        start_cycle(board, snapshot.now)


def _as_they_stand(layout: Layout, names: set[str]) -> dict[str, Workload]:
    result = {}
    for board in layout.boards.values():
        for name in names & board.gangs.keys():
            result[name] = board.gangs[name].workload
    return result


def _take_over_usage(board: Board, before: Sequence[Queue], now: Sequence[Queue]) -> None:
    board.queues = now
    for queue in compress(now, map(is_not, before, now)):
        account = board.ledger.accounts[queue.name]
        account.queue = queue
        account.entitlement = queue.entitlements.get(board.pool.name, NO_CLAIM)
