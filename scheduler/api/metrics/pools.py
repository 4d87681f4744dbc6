"""Prometheus metrics of node pools: nodes, GPUs, provisioning, scaling and cost."""

from collections import Counter
from collections.abc import Iterable

from django.db.models import Count, F, Func, IntegerField, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pools.costs import current_price, hours_by_pool
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from scheduler.models import Allocation

MILLI = 1000.0
MANUAL_RULE = "by_hand"
DEVICES = Func(F("devices"), function="cardinality", output_field=IntegerField())
NodeCounts = dict[tuple[str, str], tuple[int, int]]


def pool_metrics() -> Iterable[Metric]:
    pools = list(NodePool.objects.order_by("name"))
    nodes = _count_nodes()
    yield from _node_metrics(pools, nodes)
    yield from _gpu_metrics(pools, nodes)
    yield from _scaling_metrics(pools)
    yield from _cost_metrics(pools, nodes)


def _count_nodes() -> NodeCounts:
    rows = Node.objects.exclude(state=NodeState.ENDED).order_by().values_list("pool__name", "state")
    return {
        (pool, state): (count, gpus or 0)
        for pool, state, count, gpus in rows.annotate(n=Count("pk"), gpu_count=Sum("gpus"))
    }


def _node_metrics(pools: Iterable[NodePool], nodes: NodeCounts) -> Iterable[Metric]:
    by_state = GaugeMetricFamily("berth_pool_nodes", "Nodes by pool and state.", labels=["pool", "state"])
    desired = GaugeMetricFamily("berth_pool_nodes_desired", "Desired number of nodes.", labels=["pool"])
    current = GaugeMetricFamily("berth_pool_nodes_current", "Ready or cordoned nodes.", labels=["pool"])
    pending = GaugeMetricFamily("berth_pool_nodes_pending", "Requested or booting nodes.", labels=["pool"])
    draining = GaugeMetricFamily("berth_pool_nodes_draining", "Draining nodes.", labels=["pool"])
    for pool in pools:
        for state in NodeState.values:
            if state != NodeState.ENDED:
                by_state.add_metric([pool.name, state], nodes.get((pool.name, state), (0, 0))[0])
        desired.add_metric([pool.name], pool.nodes_desired)
        for gauge, states in ((current, USABLE), (pending, PENDING), (draining, (NodeState.DRAINING,))):
            gauge.add_metric([pool.name], sum(nodes.get((pool.name, s), (0, 0))[0] for s in states))
    yield from (by_state, desired, current, pending, draining)


def _gpu_metrics(pools: Iterable[NodePool], nodes: NodeCounts) -> Iterable[Metric]:
    rows = Allocation.objects.filter(released_at=None).order_by().values_list("node__pool__name")
    allocated_milli = dict(rows.annotate(allocated_milli=Sum(F("gpu_milli") * DEVICES)))
    gpus = GaugeMetricFamily("berth_pool_gpus", "GPUs of ready nodes.", labels=["pool"])
    allocated = GaugeMetricFamily("berth_pool_gpus_allocated", "GPUs allocated to pods.", labels=["pool"])
    for pool in pools:
        gpus.add_metric([pool.name], nodes.get((pool.name, NodeState.READY), (0, 0))[1])
        allocated.add_metric([pool.name], (allocated_milli.get(pool.name) or 0) / MILLI)
    yield from (gpus, allocated)


def _scaling_metrics(pools: Iterable[NodePool]) -> Iterable[Metric]:
    calls = CounterMetricFamily(
        "berth_pool_provision_calls", "Provisioning calls by outcome.", labels=["pool", "outcome"]
    )
    decisions = CounterMetricFamily(
        "berth_pool_scaling_decisions",
        "Changes to the desired node count by rule.",
        labels=["pool", "reason"],
    )
    scaling_events = ScalingEvent.objects.filter(kind=ScalingKind.AUTOSCALE).order_by()
    counts: Counter[tuple[int, str]] = Counter()
    for pool_id, rule, count in scaling_events.values_list("pool_id", "data__rule").annotate(n=Count("pk")):
        counts[pool_id, rule or MANUAL_RULE] += count
    for pool in pools:
        for outcome, count in sorted(pool.provision_outcomes.items()):
            calls.add_metric([pool.name, outcome], count)
        for (pool_id, rule), count in sorted(counts.items()):
            if pool_id == pool.pk:
                decisions.add_metric([pool.name, rule], count)
    yield from (calls, decisions)


def _cost_metrics(pools: Iterable[NodePool], nodes: NodeCounts) -> Iterable[Metric]:
    node_hours = CounterMetricFamily(
        "berth_pool_node_hours", "Node-hours from provisioning to end.", labels=["pool"]
    )
    gpu_hours = CounterMetricFamily(
        "berth_pool_gpu_hours", "GPU-hours from provisioning to end.", labels=["pool"]
    )
    cost = GaugeMetricFamily(
        "berth_pool_cost_per_hour", "Cost of the current nodes; absent without a price.", labels=["pool"]
    )
    hours = hours_by_pool(timezone.now())
    for pool in pools:
        node_hours_total, gpu_hours_total = hours.get(pool.pk, (0.0, 0.0))
        node_hours.add_metric([pool.name], node_hours_total)
        gpu_hours.add_metric([pool.name], gpu_hours_total)
        price = current_price(pool)
        if price is not None:
            gpus = sum(node_gpus for (name, _), (_, node_gpus) in nodes.items() if name == pool.name)
            cost.add_metric([pool.name], float(price * gpus))
    yield from (node_hours, gpu_hours, cost)
