"""Prometheus metrics of utilization. Values that were not measured are omitted."""

from collections.abc import Iterable

from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily, Metric

from pools.models import Node, NodePool
from pools.models.node import HOSTING
from projects.models import Phase, Workload
from projects.queries.idle_gpus import idle_since
from scheduler.reports.utilization import summary

MILLI, MIB = 1000.0, 1024.0 * 1024.0


def utilization_metrics() -> Iterable[Metric]:
    now = timezone.now()
    pods = summary.summarize_pods(summary.running_allocations(), now)
    pools = list(NodePool.objects.order_by("name").values_list("name", flat=True))
    by_pool = {name: summary.sum_utilization(pod.use for pod in pods if pod.pool == name) for name in pools}
    yield from _pool_metrics(by_pool)
    yield from _device_metrics()
    workloads_with_gpus = Workload.objects.filter(phase=Phase.RUNNING, gpu_milli_now__gt=0).values_list(
        "pk", "pool__name"
    )
    pool_by_workload = dict(workloads_with_gpus)
    idle = [pool_by_workload[pk] for pk in idle_since(pool_by_workload, now)]
    gauge = GaugeMetricFamily(
        "berth_workloads_gpus_idle",
        "Workloads whose allocated GPUs have been idle for a long time.",
        labels=["pool"],
    )
    for name in pools:
        gauge.add_metric([name], idle.count(name))
    yield gauge


def _pool_metrics(by_pool: dict[str, summary.Utilization]) -> Iterable[Metric]:
    measured = GaugeMetricFamily(
        "berth_pool_gpus_measured", "Allocated GPUs with measured utilization.", labels=["pool"]
    )
    busy = GaugeMetricFamily(
        "berth_pool_gpus_used", "Utilization of the measured GPUs, in GPUs.", labels=["pool"]
    )
    cores = {
        "allocated": GaugeMetricFamily(
            "berth_pool_cores_allocated", "Cores allocated to running pods.", labels=["pool"]
        ),
        "used": GaugeMetricFamily("berth_pool_cores_used", "Cores used by running pods.", labels=["pool"]),
    }
    memory = {
        "allocated": GaugeMetricFamily(
            "berth_pool_memory_allocated_bytes", "Memory allocated to running pods.", labels=["pool"]
        ),
        "used": GaugeMetricFamily(
            "berth_pool_memory_used_bytes", "Memory used by running pods.", labels=["pool"]
        ),
    }
    for name, use in by_pool.items():
        measured.add_metric([name], use.measured_gpu_milli / MILLI)
        cores["allocated"].add_metric([name], use.allocated_cpu_milli / MILLI)
        memory["allocated"].add_metric([name], use.allocated_memory_mib * MIB)
        if use.gpu_milli is not None:
            busy.add_metric([name], use.gpu_milli / MILLI)
        if use.cpu_milli is not None:
            cores["used"].add_metric([name], use.cpu_milli / MILLI)
        if use.memory_mib is not None:
            memory["used"].add_metric([name], use.memory_mib * MIB)
    yield from (measured, busy, *cores.values(), *memory.values())


def _device_metrics() -> Iterable[Metric]:
    names = ["pool", "node", "device"]
    busy = GaugeMetricFamily(
        "berth_gpu_utilization_ratio", "Fraction of time that the GPU was busy.", labels=names
    )
    memory = GaugeMetricFamily("berth_gpu_memory_used_bytes", "Memory used on the GPU.", labels=names)
    nodes = {node.pk: node for node in Node.objects.filter(state__in=HOSTING).select_related("pool")}
    for pk, devices in sorted(summary.devices_by_node(list(nodes.values()), timezone.now()).items()):
        for device in devices:
            label_values = [nodes[pk].pool.name, nodes[pk].name, str(device.index)]
            if device.busy_milli is not None:
                busy.add_metric(label_values, device.busy_milli / MILLI)
            if device.memory_mib is not None:
                memory.add_metric(label_values, device.memory_mib * MIB)
    yield from (busy, memory)
