"""Update the previous snapshot's layout instead of building a new one.

An updated board equals a newly built one.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import compress
from operator import attrgetter, is_, is_not

from scheduler.engine.board.board import Board
from scheduler.engine.board.ledger import NO_POOL_QUOTA
from scheduler.engine.layout.board_updates import start_cycle
from scheduler.engine.layout.difference import find_differences
from scheduler.engine.layout.layout import Layout, is_finished, reservations_by_workload
from scheduler.engine.layout.soundness import overallocated_nodes, unmatched_reservations
from scheduler.engine.model import PoolQuota, Queue, Snapshot, Workload

# Queue fields that may differ when a layout is reused. Pool quotas are compared separately, without usage.
VARYING = "pool_quotas", "expected_runtime"
_queue_settings = attrgetter(*(field.name for field in fields(Queue) if field.name not in VARYING))
_pool_quota_settings = attrgetter(*(field.name for field in fields(PoolQuota) if field.name != "usage"))


def prepare_layout(snapshot: Snapshot, previous_layout: Layout | None) -> Layout:
    """Return the previous layout, updated to match the snapshot.

    Return a new layout if the cluster has changed, or if the previous input was inconsistent.
    """
    if (
        previous_layout is None
        or previous_layout.notes
        or not is_same_cluster(previous_layout.snapshot, snapshot)
    ):
        return Layout(snapshot)
    _update_layout(previous_layout, snapshot)
    return previous_layout


def is_same_cluster(before: Snapshot, now: Snapshot) -> bool:
    """Return whether the pools, nodes and queues of two snapshots are equal, apart from decayed usage and
    expected runtimes.
    """
    return (
        before.pools == now.pools
        and before.nodes == now.nodes
        and len(before.queues) == len(now.queues)
        and (
            all(map(is_, before.queues, now.queues))
            or all(map(_have_same_settings, before.queues, now.queues))
        )
    )


def _have_same_settings(one: Queue, other: Queue) -> bool:
    pool_quotas, other_pool_quotas = one.pool_quotas, other.pool_quotas
    return one is other or (
        _queue_settings(one) == _queue_settings(other)
        and pool_quotas.keys() == other_pool_quotas.keys()
        and all(
            _pool_quota_settings(result) == _pool_quota_settings(other_pool_quotas[pool])
            for pool, result in pool_quotas.items()
        )
    )


def _update_layout(layout: Layout, snapshot: Snapshot) -> None:
    before = layout.snapshot
    was, now = find_differences(before.workloads, snapshot.workloads)
    affected = {name for board in layout.boards.values() for name in board.undo_all_moves()}
    reserved = reservations_by_workload(snapshot)
    affected |= layout.reserved.keys() | reserved.keys()
    if before.now != snapshot.now:
        affected |= layout.time_dependent
    finished = {name for name, workload in now.items() if workload.pods and is_finished(workload)}
    if was.keys() != now.keys() or finished != layout.finished & was.keys():
        affected |= layout.with_dependencies
    layout.quota_groups.use_full_quotas()
    for board in layout.boards.values():
        board.nodes.touched = []
    again = {**_workloads_on_boards(layout, affected - was.keys()), **now}
    for name in (*affected, *was):
        layout.remove(name)
    layout.snapshot, layout.now, layout.reserved = snapshot, snapshot.now, reserved
    layout.workload_names.difference_update(was)  # updated in place, because the set is large
    layout.workload_names.update(now)
    layout.finished.difference_update(was)
    layout.finished.update(finished)
    for workload in again.values():
        layout.add(workload)
    layout.notes += unmatched_reservations(snapshot.reservations, layout.workload_names)
    layout.served.clear()
    for board in layout.boards.values():
        _update_usage(board, before.queues, snapshot.queues)
    layout.quota_groups.start_cycle()
    for board in layout.boards.values():
        # Only changed nodes can be newly overallocated.
        layout.notes += overallocated_nodes(board.nodes, board.nodes.touched)
        start_cycle(board, snapshot.now)


def _workloads_on_boards(layout: Layout, names: set[str]) -> dict[str, Workload]:
    result = {}
    for board in layout.boards.values():
        for name in names & board.gangs.keys():
            result[name] = board.gangs[name].workload
    return result


def _update_usage(board: Board, before: Sequence[Queue], now: Sequence[Queue]) -> None:
    board.queues = now
    for queue in compress(now, map(is_not, before, now)):
        account = board.ledger.accounts[queue.name]
        account.queue = queue
        account.pool_quota = queue.pool_quotas.get(board.pool.name, NO_POOL_QUOTA)
