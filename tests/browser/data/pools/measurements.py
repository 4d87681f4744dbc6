"""Browser test data: utilization measurements that end with the latest measured values."""

import math
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.utils import timezone

from berth.core.values.amounts import MILLI
from pools.models import Node
from projects.models import Pod
from scheduler.models import NodeUtilization, PodUtilization, UtilizationPoint
from tests import factories as make

MINUTES, HOURS = 60, 24
IDLE = ("embedding-refresh",)  # this workload has never used its GPUs


def create_measurements() -> None:
    """Create measurements for all running pods, except for the GPUs in pool `local`."""
    now = timezone.now()
    pods = Pod.objects.filter(state="running").select_related("workload", "allocation", "node__pool")
    for number, pod in enumerate(pods.order_by("created_at")):
        is_measured = pod.node.pool.name == "train"
        busy = 0 if pod.workload.name in IDLE else 60 + number % 5 * 7
        measured = make.used(
            pod, *[busy if is_measured else None] * len(pod.allocation.devices),
            cpu=1100 + 100 * (number % 4), memory=2500,
            gpu_memory=(61_000 - 900 * number) if is_measured else None,
            busy_at=pod.started_at if is_measured and not busy else None,
        )  # fmt: skip
        create_points(measured, number, now)
    for node in Node.objects.filter(pool__name="train", state="ready"):
        NodeUtilization.objects.create(node=node, at=now, devices=_measured_devices(node))


def create_points(measured: PodUtilization, number: int, now: datetime) -> None:
    """Create utilization points per minute and per hour, from the start of a pod's allocation to its latest
    measurement.

    The utilization rises and falls like a wave. `number` shifts the wave in time.
    """
    pod, (busy, gpu_memory) = measured.pod, measured.devices[0] if measured.devices else (None, None)
    gpus = pod.allocation.gpu_milli_total if busy is not None else 0
    points = []
    for step, count in ((60, MINUTES), (3600, HOURS)):
        for back, (at, seconds) in enumerate(_periods(pod.allocation.bound_at, now, step, count)):
            wave = math.sin((back + number) / 5) - math.sin(number / 5)
            share = max(0.05, min(1.0, (busy or 0) / 1000 + 0.2 * wave)) if busy else 0
            point = UtilizationPoint(
                pod=pod, step=step, at=at, seconds=seconds,
                cpu_milli_seconds=max(100, measured.cpu_milli + 350 * wave) * seconds,
                memory_mib=round(measured.memory_mib + 300 * wave), gpu_milli_seconds=gpus * seconds,
                gpu_busy_milli_seconds=gpus * seconds * share, gpu_memory_mib=gpu_memory,
            )  # fmt: skip
            points.append(point)
    UtilizationPoint.objects.bulk_create(points)


def _periods(begin: datetime, end: datetime, step: int, count: int) -> Iterator[tuple[datetime, float]]:
    """Yield the start of each minute or hour between `begin` and `end`, and the seconds that it covers. The
    latest comes first.
    """
    at = datetime.fromtimestamp(end.timestamp() // step * step, tz=end.tzinfo)
    for _ in range(count):
        first, last = max(at, begin), min(at + timedelta(seconds=step), end)
        if last <= first:
            return
        yield at, (last - first).total_seconds()
        at -= timedelta(seconds=step)


def _measured_devices(node: Node) -> list[list[int]]:
    """Return the utilization and memory of each device, computed from its pods."""
    busy, memory = defaultdict[int, float](float), defaultdict[int, int](int)
    for row in PodUtilization.objects.filter(pod__node=node).select_related("pod__allocation"):
        allocation = row.pod.allocation
        for device, (share, used) in zip(allocation.devices, row.devices, strict=True):
            busy[device] += (share or 0) * allocation.gpu_milli / MILLI
            memory[device] = max(memory[device], used or 0)
    return [[round(busy[device]), memory[device] or 4] for device in range(node.gpus)]
