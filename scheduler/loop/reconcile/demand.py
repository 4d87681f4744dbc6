"""Report to each pool the load on it, and which of its draining nodes are empty."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from django.db import connection

from berth.core.amounts import MILLI
from pools.models import Node, NodePool
from pools.models.node import PENDING, USABLE
from pools.services import nodes_emptied, report_pressure
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.engine.plan import NO_LOAD, Demand, Load
from scheduler.loop.observe.view import ClusterView
from scheduler.models import Reservation

ALLOCATED = """
    SELECT node.pool_id, sum(a.gpu_milli::bigint * cardinality(a.devices)), sum(a.cpu_milli),
           sum(a.memory_mib), count(*)
      FROM scheduler_allocation AS a JOIN pools_node AS node ON node.id = a.node_id
     WHERE a.released_at IS NULL
     GROUP BY 1
"""


def report_demand(view: ClusterView, demands: Iterable[Demand]) -> int:
    """Report to each pool what its nodes hold and what waits for more; return how many now resize."""
    by_name = {demand.pool: demand for demand in demands}
    allocated = _allocated()
    capacity, promised = _capacity(), _reserved()
    changed = 0
    for name, pool in sorted(view.pools.items()):
        demand = by_name.get(name)
        if demand is None:  # nothing was decided there in this cycle: the last report still holds
            continue
        coming = promised.get(pool.pk, Coming())
        queued, binding = in_slots(demand.queued.plus(coming.load), pool)
        if coming.waits and name in view.below_threshold:  # the current nodes do not fit: keep the threshold
            queued = max(queued, 1)
        # Rows know the pods that are stopping; the plan knows the limits by which room is counted.
        running = Load(*map(max, allocated.get(pool.pk, NO_LOAD), demand.standing))
        changed += report_pressure(
            pool.pk,
            queued=queued,
            running=in_slots(running, pool)[0],
            capacity=capacity.get(pool.pk, 0),
            gang_nodes=demand.nodes_wanted + len(coming.nodes),
            binding=binding,
            at=view.at,
        )
    return changed


def in_slots(load: Load, pool: NodePool) -> tuple[int, str]:
    """Return the slots that a load fills, in thousandths, by the resource that binds, and its name.

    A node has one slot per GPU, one if it has no GPU. A load that takes half of a node's memory, and less
    than half of everything else, fills half of its slots.
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


def _allocated() -> dict[int, Load]:
    """By pool, the requests of all pods that have not ended."""
    with connection.cursor() as cursor:
        cursor.execute(ALLOCATED)
        return {pool: Load(*map(int, amounts)) for pool, *amounts in cursor.fetchall()}


def report_empty_drains(now: datetime) -> int:
    """A draining node without pods may be ended."""
    busy = Pod.objects.filter(state__in=LIVE_POD_STATES).values("node_id")
    return nodes_emptied(Node.objects.exclude(pk__in=busy), at=now)


@dataclass(slots=True)
class Coming:
    """Reservations of one pool: the load reserved on pending nodes, and whether there is any at all."""

    load: Load = NO_LOAD
    nodes: set[int] = field(default_factory=set)
    waits: bool = False


def _reserved() -> dict[int, Coming]:
    by_pool: dict[int, Coming] = {}
    for row in Reservation.objects.select_related("node").order_by("pk"):
        coming = by_pool.setdefault(row.node.pool_id, Coming())
        coming.waits = True
        if row.node.state in PENDING:
            coming.load = coming.load.plus(Load(gpu=row.gpu_milli * len(row.devices), pods=1))
            coming.nodes.add(row.node_id)
    return by_pool


def _capacity() -> dict[int, int]:
    """Milli-GPU of the usable nodes; of nodes without GPUs, a thousand each."""
    sums: dict[int, int] = {}
    for pool_id, gpus in Node.objects.filter(state__in=USABLE).values_list("pool_id", "gpus").order_by("pk"):
        sums[pool_id] = sums.get(pool_id, 0) + (gpus or 1) * MILLI
    return sums
