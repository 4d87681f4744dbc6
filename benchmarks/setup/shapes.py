"""Snapshots of clusters for the decision benchmarks. Nodes have eight GPUs unless stated otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.model import (
    FairShareMode,
    Node,
    Pod,
    Pool,
    PoolQuota,
    Queue,
    Request,
    Role,
    RoleGroup,
    Snapshot,
    Strategy,
    Usage,
    Workload,
)

NOW, POOL, PER_NODE = 1_800_000_000, "default", 8


def nodes(count: int) -> tuple[Node, ...]:
    return tuple(
        Node(f"n{i:05}", POOL, PER_NODE, "A100", 81_920, cpu=128_000, memory_mib=1_000_000)
        for i in range(count)
    )


def queue(name: str, parent: str | None, gpus: float | None, weight: float = 1.0) -> Queue:
    quota = Bounds(None if gpus is None else round(gpus * MILLI), None, None)
    return Queue(name, parent, NOW - 10_000, {POOL: PoolQuota(quota, weights=(weight,) * 3)})


def queues(projects: int, departments: int, gpus: float | None) -> tuple[Queue, ...]:
    tops = tuple(queue(f"d{d}", None, None) for d in range(departments))
    return tops + tuple(queue(f"p{p:04}", f"d{p % departments}", gpus) for p in range(projects))


def work(
    name: str, project: str, pods: int, gpus: int, at: int = 0, on: tuple[tuple[str, int], ...] = ()
) -> Workload:
    """Return a workload. `on` lists the node and the first device of each running pod."""
    role = Role("worker", pods, pods, Request(MILLI, gpus, 0, 1000, 1024, 1000, 1024))
    placed = tuple(
        Pod("worker", index, node, tuple(range(first, first + gpus)), started=NOW - 3600)
        for index, (node, first) in enumerate(on)
    )
    return Workload(name, project, RoleGroup(name, (role,), 1), (POOL,), submitted=NOW - 500_000 + at,
                    started=NOW - 3600 if on else None, pods=placed)  # fmt: skip


def snapshot(size: int, tenants: tuple[Queue, ...], workloads: list[Workload]) -> Snapshot:
    return Snapshot(NOW, (Pool(POOL),), nodes(size), tenants, tuple(workloads))


def seats(size: int, until: int = PER_NODE) -> list[tuple[str, int]]:
    return [(f"n{i:05}", device) for i in range(size) for device in range(until)]


def place(size: int, jobs: int, projects: int, departments: int, pods: int = 1) -> Snapshot:
    tenants = queues(projects, departments, size * PER_NODE / projects)
    return snapshot(size, tenants, [work(f"j{j:05}", f"p{j % projects:04}", pods, 1, j) for j in range(jobs)])


def half_running(size: int, jobs: int, projects: int) -> Snapshot:
    tenants = queues(projects, 2, size * PER_NODE / projects)
    used_seats = seats(size)
    return snapshot(size, tenants, [
        work(f"j{j:05}", f"p{j % projects:04}", 1, 1, j, (used_seats[j],) if j < jobs // 2 else ())
        for j in range(jobs)
    ])  # fmt: skip


def consolidation(size: int) -> Snapshot:
    """Return a cluster whose nodes are half full of one-GPU jobs, and pending gangs that need whole nodes."""
    running = [work(f"r{j:05}", "p0000", 1, 1, j, (seat,)) for j, seat in enumerate(seats(size, 4))]
    wide = [work(f"w{j:02}", "p0001", 1, PER_NODE, 9000 + j) for j in range(5)]
    return snapshot(size, queues(2, 1, size * PER_NODE), running + wide)


def one_big_reclaim(size: int) -> Snapshot:
    """Return a cluster full of borrowing one-GPU jobs, and one pending gang that needs half the nodes."""
    tenants = (queue("d0", None, None), queue("owner", "d0", size * PER_NODE / 2), queue("guest", "d0", 0))
    running = [work(f"r{j:05}", "guest", 1, 1, j, (seat,)) for j, seat in enumerate(seats(size))]
    return snapshot(size, tenants, [*running, work("big", "owner", size // 2, PER_NODE, 9000)])


def one_gpu_short(size: int) -> Snapshot:
    """Return a cluster in which a gang of ten whole-node pods needs one more GPU than it may reclaim."""
    total = size * PER_NODE
    tenants = (queue("d0", None, None), queue("owner", "d0", 80), queue("guest", "d0", total - 79))
    running = [work(f"r{j:05}", "guest", 1, 1, j, (seat,)) for j, seat in enumerate(seats(size))]
    return snapshot(size, tenants, [*running, work("big", "owner", 10, PER_NODE, 9000)])


def gangs_by_reclaim(size: int, gangs: int) -> Snapshot:
    """Return a cluster in which gangs of ten 5-GPU pods reclaim GPUs one after another."""
    tenants = (queue("d0", None, None), queue("owner", "d0", gangs * 50), queue("guest", "d0", 0))
    running = [work(f"r{j:05}", "guest", 1, 1, j, (seat,)) for j, seat in enumerate(seats(size))]
    waiting = [work(f"g{g:02}", "owner", 10, 5, 9000 + g) for g in range(gangs)]
    return snapshot(size, tenants, running + waiting)


def evictions_with_moves(size: int) -> Snapshot:
    """Return a cluster with one free GPU on each of four nodes, and a workload that needs a whole node.

    The workload's quota covers the node. The other project is four GPUs over quota, so four of its workloads
    are evicted and four are moved.
    """
    total = size * PER_NODE
    tenants = (
        queue("d0", None, None),
        queue("owner", "d0", PER_NODE),
        queue("guest", "d0", total - PER_NODE),
    )
    full = [*seats(4, PER_NODE - 1), *seats(size)[4 * PER_NODE :]]
    running = [work(f"r{j:05}", "guest", 1, 1, j, (seat,)) for j, seat in enumerate(full)]
    return snapshot(size, tenants, [*running, work("node", "owner", 1, PER_NODE, 9000)])


def no_room_for_moves(size: int) -> Snapshot:
    """Return a cluster in which evictions could be combined with moves, but no workload fits on another node.

    Each node runs two workloads of three GPUs. Only one workload in the cluster may be evicted. The other
    workload on its node cannot be moved, because every node has only two free GPUs.
    """
    tenants = (queue("d0", None, None), queue("owner", "d0", PER_NODE), queue("guest", "d0", size * 6 - 3))
    running = [
        work(f"r{i:05}-{first}", "guest", 1, 3, 2 * i + first, ((node, first),))
        for i, (node, _) in enumerate(seats(size, 1))
        for first in (0, 3)
    ]
    return snapshot(size, tenants, [*running, work("node", "owner", 1, PER_NODE, 9000)])


def steady(size: int, projects: int, jobs: int) -> Snapshot:
    """Return a full cluster with many pending workloads.

    Every queue is at its quota, so there is nothing to decide.
    """
    tenants = queues(projects, 20, size * PER_NODE / projects)
    used_seats = seats(size)
    return snapshot(size, tenants, [
        work(f"j{j:06}", f"p{j % projects:04}", 1, 1, j, (used_seats[j],) if j < len(used_seats) else ())
        for j in range(jobs)
    ])  # fmt: skip


def change_pending_workloads(before: Snapshot, rows: int, turn: int) -> Snapshot:
    """Advance the clock by a second, and change `rows` pending workloads."""
    workloads = list(before.workloads)
    waiting = range(len(before.nodes) * PER_NODE, len(workloads))
    for at in waiting[turn * rows : (turn + 1) * rows]:
        workloads[at] = replace(workloads[at], submitted=workloads[at].submitted + 1)
    return replace(before, now=before.now + 1, workloads=tuple(workloads))


def change_usage(before: Snapshot, rows: int, turn: int) -> Snapshot:
    """Advance the clock by a second, and change `rows` pending workloads and all queues' decayed usage."""
    now = change_pending_workloads(before, rows, turn)
    used = Usage((0.3 + turn / 1000, 0.0, 0.0), (1.0, 1.0, 1.0))
    queues = tuple(
        replace(queue, pool_quotas={pool: replace(e, usage=used) for pool, e in queue.pool_quotas.items()})
        for queue in now.queues
    )
    return replace(now, queues=queues)


def settings(before: Snapshot, **changed: Any) -> Snapshot:
    return replace(before, pools=tuple(replace(pool, **changed) for pool in before.pools))


def end_running_workloads(before: Snapshot, rows: int, turn: int) -> Snapshot:
    """Advance the clock by a second, and end `rows` running workloads to make room for pending workloads."""
    ended = {workload.name for workload in before.workloads[turn * rows : (turn + 1) * rows]}
    staying = tuple(workload for workload in before.workloads if workload.name not in ended)
    return replace(before, now=before.now + 1, workloads=staying)


def many_request_kinds(size: int, kinds: int) -> Snapshot:
    """Return a full cluster with `kinds` different pending requests, two workloads of each."""
    tenants = queues(50, 5, size * PER_NODE / 50)
    running = [work(f"r{j:05}", f"p{j % 50:04}", 1, 1, j, (seat,)) for j, seat in enumerate(seats(size))]
    waiting = [
        work(f"w{k:05}-{twin}", f"p{k % 50:04}", 1 + k // 50, 1, 9000 + k)
        for k in range(kinds)
        for twin in (0, 1)
    ]
    return snapshot(size, tenants, running + waiting)


SHAPES: Mapping[str, Callable[[], Snapshot]] = {
    "place 500 x 1 GPU on 100 nodes, 4 queues": partial(place, 100, 500, 4, 2),
    "half running, half pending, 100 nodes": partial(half_running, 100, 500, 4),
    "20 queues, 200 jobs, 50 nodes": partial(place, 50, 200, 20, 2),
    "100 gangs of 4 on 50 nodes": partial(place, 50, 100, 4, 2, 4),
    "consolidation for 5 wide jobs on 50 nodes": partial(consolidation, 50),
    "one gang reclaims half of 100 full nodes": partial(one_big_reclaim, 100),
    "one gang reclaims half of 200 full nodes": partial(one_big_reclaim, 200),
    "one gang reclaims half of 500 full nodes": partial(one_big_reclaim, 500),
    "one gang reclaims half of 1000 full nodes": partial(one_big_reclaim, 1000),
    "reject 10 x 8 GPUs, one short, 50 nodes": partial(one_gpu_short, 50),
    "reject 10 x 8 GPUs, one short, 100 nodes": partial(one_gpu_short, 100),
    "reject 10 x 8 GPUs, one short, 500 nodes": partial(one_gpu_short, 500),
    "reject 10 x 8 GPUs, one short, 1000 nodes": partial(one_gpu_short, 1000),
    "place 4000 x 1 GPU on 500 nodes": partial(place, 500, 4000, 8, 2),
    "50 gangs of 10 x 5 GPUs by reclaim, 500 nodes": partial(gangs_by_reclaim, 500, 50),
    **{f"evict 4 and move 4, {size} nodes": partial(evictions_with_moves, size) for size in (100, 500)},
    **{f"no room for moves, {size} nodes": partial(no_room_for_moves, size) for size in (100, 500)},
    **{f"scale: 500 x 1 GPU on {size} empty nodes": partial(place, size, 500, 4, 2)
       for size in (500, 1000, 2000, 4000)},
    **{f"scale: {kinds} kinds wait, 500 full nodes": partial(many_request_kinds, 500, kinds)
       for kinds in (250, 500, 1000, 2000)},
    "fresh: 4000 nodes, 1000 projects, 100000 workloads": partial(steady, 4000, 1000, 100_000),
}  # fmt: skip

CHANGES: Mapping[str, tuple[Callable[[Snapshot, int, int], Snapshot], dict[str, Any]]] = {
    "carried: the same, 100 waiting rows changed": (change_pending_workloads, {}),
    "carried: the same, 100 ended": (end_running_workloads, {}),
    "carried: 100 changed, it may grow by 10 nodes": (change_pending_workloads, {"nodes_max": 4010}),
    "carried: 100 changed, placement as it fits best": (
        change_pending_workloads,
        {"node_strategy": Strategy.AUTO},
    ),
    "carried: 100 changed, history counts": (change_usage, {"fair_share": FairShareMode(True, k=1.0)}),
}
