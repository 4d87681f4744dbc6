"""Prometheus metrics of node pools: nodes, orders, decisions, GPUs, hours and cost."""

from collections import Counter
from collections.abc import Iterable

from django.db.models import Count, F, Func, IntegerField, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pools.costs import current_price, hours_of_all
from pools.models import Node, NodePool, ScalingEvent
from pools.models.node import PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from scheduler.models import Allocation

MILLI = 1000.0
BY_HAND = "by_hand"
DEVICES = Func(F("devices"), function="cardinality", output_field=IntegerField())
Counted = dict[tuple[str, str], tuple[int, int]]


def pool_metrics() -> Iterable[Metric]:
    pools = list(NodePool.objects.order_by("name"))
    nodes = _nodes()
    yield from _of_nodes(pools, nodes)
    yield from _of_gpus(pools, nodes)
    yield from _of_history(pools)
    yield from _of_costs(pools, nodes)


def _nodes() -> Counted:
    """By pool and state: how many, and their GPUs."""
    rows = Node.objects.exclude(state=NodeState.ENDED).order_by().values_list("pool__name", "state")
    return {
        (pool, state): (count, gpus or 0)
        for pool, state, count, gpus in rows.annotate(n=Count("pk"), gpus_of=Sum("gpus"))
    }


def _of_nodes(pools: Iterable[NodePool], nodes: Counted) -> Iterable[Metric]:
    by_state = GaugeMetricFamily("berth_pool_nodes", "Nodes by pool and state.", labels=["pool", "state"])
    wanted = GaugeMetricFamily("berth_pool_nodes_desired", "Nodes that the pool is to have.", labels=["pool"])
    current = GaugeMetricFamily("berth_pool_nodes_current", "Ready or cordoned nodes.", labels=["pool"])
    pending = GaugeMetricFamily("berth_pool_nodes_pending", "Ordered, not ready yet.", labels=["pool"])
    draining = GaugeMetricFamily("berth_pool_nodes_draining", "Being emptied.", labels=["pool"])
    for pool in pools:
        for state in NodeState.values:
            if state != NodeState.ENDED:
                by_state.add_metric([pool.name, state], nodes.get((pool.name, state), (0, 0))[0])
        wanted.add_metric([pool.name], pool.nodes_desired)
        for gauge, states in ((current, USABLE), (pending, PENDING), (draining, (NodeState.DRAINING,))):
            gauge.add_metric([pool.name], sum(nodes.get((pool.name, s), (0, 0))[0] for s in states))
    yield from (by_state, wanted, current, pending, draining)


def _of_gpus(pools: Iterable[NodePool], nodes: Counted) -> Iterable[Metric]:
    rows = Allocation.objects.filter(released_at=None).order_by().values_list("node__pool__name")
    held = dict(rows.annotate(held=Sum(F("gpu_milli") * DEVICES)))
    gpus = GaugeMetricFamily("berth_pool_gpus", "GPUs of nodes that take work.", labels=["pool"])
    busy = GaugeMetricFamily("berth_pool_gpus_allocated", "GPUs held by pods.", labels=["pool"])
    for pool in pools:
        gpus.add_metric([pool.name], nodes.get((pool.name, NodeState.READY), (0, 0))[1])
        busy.add_metric([pool.name], (held.get(pool.name) or 0) / MILLI)
    yield from (gpus, busy)


def _of_history(pools: Iterable[NodePool]) -> Iterable[Metric]:
    calls = CounterMetricFamily(
        "berth_pool_provision_calls", "Answered orders, by outcome.", labels=["pool", "outcome"]
    )
    decisions = CounterMetricFamily(
        "berth_pool_scaling_decisions", "Changes of how many are wanted, by rule.", labels=["pool", "reason"]
    )
    decided = ScalingEvent.objects.filter(kind=ScalingKind.AUTOSCALE).order_by()
    counts: Counter[tuple[int, str]] = Counter()
    for pool_id, rule, count in decided.values_list("pool_id", "data__rule").annotate(n=Count("pk")):
        counts[pool_id, rule or BY_HAND] += count
    for pool in pools:
        for outcome, count in sorted(pool.provision_outcomes.items()):
            calls.add_metric([pool.name, outcome], count)
        for (pool_id, rule), count in sorted(counts.items()):
            if pool_id == pool.pk:
                decisions.add_metric([pool.name, rule], count)
    yield from (calls, decisions)


def _of_costs(pools: Iterable[NodePool], nodes: Counted) -> Iterable[Metric]:
    node_hours = CounterMetricFamily("berth_pool_node_hours", "From order to end.", labels=["pool"])
    gpu_hours = CounterMetricFamily("berth_pool_gpu_hours", "The same, times GPUs.", labels=["pool"])
    cost = GaugeMetricFamily(
        "berth_pool_cost_per_hour", "Of the nodes there are; absent without a price.", labels=["pool"]
    )
    spent = hours_of_all(timezone.now())
    for pool in pools:
        of_nodes, of_gpus = spent.get(pool.pk, (0.0, 0.0))
        node_hours.add_metric([pool.name], of_nodes)
        gpu_hours.add_metric([pool.name], of_gpus)
        price = current_price(pool)
        if price is not None:
            gpus = sum(has for (name, _), (_, has) in nodes.items() if name == pool.name)
            cost.add_metric([pool.name], float(price * gpus))
    yield from (node_hours, gpu_hours, cost)
