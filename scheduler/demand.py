"""Here each pool is told what presses on it, and which of its draining nodes are empty."""

from collections.abc import Iterable
from datetime import datetime

from berth.core.amounts import MILLI
from pools.models import Node
from pools.models.node import USABLE
from pools.services import node_emptied, report_pressure
from projects.models import Pod
from projects.models.workloads import LIVE_POD_STATES
from scheduler.engine.plan import Demand
from scheduler.models import Allocation
from scheduler.observe import Seen
from scheduler.standings import held_by_pool


def tell_pools(seen: Seen, demands: Iterable[Demand]) -> int:
    """Returns how many pools want another number of nodes now."""
    by_name = {demand.pool: demand for demand in demands}
    held = held_by_pool()
    capacity = _capacity()
    changed = 0
    for name, pool in sorted(seen.pools.items()):
        demand = by_name.get(name, Demand(name))
        gpu, cpu, _ = held.get(pool.pk, (0, 0, 0))
        queued = demand.queued_milli_gpu
        if not pool.gpus_per_node:  # such a pool is counted in thousandths of a node
            gpu, queued = cpu * MILLI // max(1, pool.cpu_milli), demand.nodes_wanted * MILLI
        changed += report_pressure(
            pool.pk,
            queued_milli_gpu=queued,
            running=gpu,
            capacity=capacity.get(pool.pk, 0),
            nodes_wanted=demand.nodes_wanted,
            at=seen.at,
        )
    return changed


def tell_empty_drains(now: datetime) -> int:
    """A draining node without pods may be ended."""
    busy = Pod.objects.filter(state__in=LIVE_POD_STATES).values("node_id")
    empty = Node.objects.filter(state="draining", emptied_at=None).exclude(pk__in=busy).order_by("pk")
    return sum(node_emptied(node, at=now) for node in empty)


def work_to_lose(now: datetime) -> dict[int, int]:
    """GPU-seconds by node id that would be lost with the node: since the start, or the last checkpoint."""
    lost: dict[int, int] = {}
    rows = Allocation.objects.filter(released_at__isnull=True).select_related("pod__workload")
    for held in rows.only("node_id", "devices", "gpu_milli", "bound_at", "pod__workload__last_checkpoint_at"):
        since = max(held.bound_at, held.pod.workload.last_checkpoint_at or held.bound_at)
        seconds = max(0, int((now - since).total_seconds()))
        lost[held.node_id] = lost.get(held.node_id, 0) + seconds * held.gpu_milli_total // MILLI
    return lost


def _capacity() -> dict[int, int]:
    """Milli-GPU of the usable nodes; of nodes without GPUs, a thousand each."""
    sums: dict[int, int] = {}
    for pool_id, gpus in Node.objects.filter(state__in=USABLE).values_list("pool_id", "gpus").order_by("pk"):
        sums[pool_id] = sums.get(pool_id, 0) + (gpus or 1) * MILLI
    return sums
