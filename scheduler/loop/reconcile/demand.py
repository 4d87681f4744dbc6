"""Report each pool's load and its empty draining nodes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from berth.core.values.amounts import MILLI
from berth.db.loops.lease import HeldLease, fenced_transaction
from berth.db.queries import prepared
from berth.db.queries.compiled import compiled_once
from pools.models import Node, NodePool
from pools.models.node import PENDING, USABLE
from pools.services import mark_nodes_emptied, report_pressure
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.engine.plan import NO_LOAD, Demand, Load
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Reservation

ALLOCATED_BY_POOL = """
    SELECT node.pool_id, sum(a.gpu_milli::bigint * cardinality(a.devices)), sum(a.cpu_milli),
           sum(a.memory_mib), count(*)
      FROM scheduler_allocation AS a JOIN pools_node AS node ON node.id = a.node_id
     WHERE a.released_at IS NULL
     GROUP BY 1
"""
RESERVATIONS = compiled_once(lambda: Reservation.objects.select_related("node").order_by("pk"))
CAPACITIES = compiled_once(
    lambda: Node.objects.filter(state__in=USABLE).order_by("pk").values_list("pool_id", "gpus")
)


def report_demand(view: ClusterView, demands: Iterable[Demand], held_lease: HeldLease) -> int:
    """Report each pool's allocated and queued load. Return the number of pools that must be resized."""
    by_name = {demand.pool: demand for demand in demands}
    capacity = _capacity_by_pool()
    allocated = _allocated_by_pool() if view.workloads else {}  # only live workloads use resources
    reserved = _reserved_by_pool() if view.workloads else {}
    changed = 0
    for name, pool in sorted(view.pools.items()):
        demand = by_name.get(name)
        if demand is None:  # no decision was made for this pool, so the last report is still valid
            continue
        reserved_load = reserved.get(pool.pk, ReservedLoad())
        queued, binding = filled_slot_count(demand.queued.plus(reserved_load.load), pool)
        # A pool below its ready threshold cannot serve its reservations.
        # Any queued load makes the pool scale up to the threshold.
        if reserved_load.has_reservations and name in view.below_threshold:
            queued = max(queued, 1)
        # Use the higher value: `allocated` includes stopping pods, and `placed` counts pod limits.
        running = Load(*map(max, allocated.get(pool.pk, NO_LOAD), demand.placed))
        changed += report_pressure(
            pool.pk,
            queued=queued,
            running=filled_slot_count(running, pool)[0],
            capacity=capacity.get(pool.pk, 0),
            gang_nodes=demand.nodes_wanted + len(reserved_load.nodes),
            binding=binding,
            at=view.at,
            fence=lambda: fenced_transaction(held_lease),
        )
    return changed


def filled_slot_count(load: Load, pool: NodePool) -> tuple[int, str]:
    """Return the number of slots that a load fills, in thousandths, and the scarcest resource.

    A node has one slot per GPU, or one slot if it has no GPUs.
    """
    cpu = pool.cpu_milli * pool.cpu_load_limit // MILLI
    node = Load(pool.gpus_per_node * MILLI, cpu, pool.memory_mib, pool.max_pods)
    slots = max(pool.gpus_per_node, 1) * MILLI
    filled = {
        kind: -(-amount * slots // whole)
        for kind, amount, whole in zip(Load._fields, load, node, strict=True)
        if whole
    }
    binding = max(filled, key=lambda kind: filled[kind])
    return filled[binding], binding


def _allocated_by_pool() -> dict[int, Load]:
    return {pool: Load(*map(int, amounts)) for pool, *amounts in prepared.fetch_all(ALLOCATED_BY_POOL, [])}


def report_empty_drains(now: datetime) -> int:
    """Report draining nodes that can now be removed.

    Return the number of nodes reported for the first time.
    """
    busy = Pod.objects.filter(state__in=LIVE_POD_STATES).values("node_id")
    return mark_nodes_emptied(Node.objects.exclude(pk__in=busy), at=now)


@dataclass(slots=True)
class ReservedLoad:
    """A pool's booting nodes with reservations, the reserved GPUs and pods on them, and whether the pool has
    any reservation.
    """

    load: Load = NO_LOAD
    nodes: set[int] = field(default_factory=set)
    has_reservations: bool = False


def _reserved_by_pool() -> dict[int, ReservedLoad]:
    by_pool: dict[int, ReservedLoad] = {}
    for row in RESERVATIONS():
        reserved_load = by_pool.setdefault(row.node.pool_id, ReservedLoad())
        reserved_load.has_reservations = True
        if row.node.state in PENDING:
            reserved_load.load = reserved_load.load.plus(Load(gpu=row.gpu_milli * len(row.devices), pods=1))
            reserved_load.nodes.add(row.node_id)
    return by_pool


def _capacity_by_pool() -> dict[int, int]:
    """Return the milli-GPUs of each pool's usable nodes. A node without GPUs counts as one GPU."""
    sums: dict[int, int] = {}
    for pool_id, gpus in CAPACITIES():
        sums[pool_id] = sums.get(pool_id, 0) + (gpus or 1) * MILLI
    return sums
