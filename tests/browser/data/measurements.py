"""Browser test data: utilization measurements."""

import math
from datetime import datetime, timedelta

from django.utils import timezone

from pools.models import Node
from projects.models import Pod
from scheduler.models import NodeUtilization
from tests import factories as make

MINUTES, HOURS = 60, 24
IDLE = ("embedding-refresh",)  # has never used its GPUs


def create_measurements() -> None:
    """Create measurements for all running pods, except for the GPUs in pool `local`."""
    now = timezone.now()
    pods = Pod.objects.filter(state="running").select_related("workload", "allocation", "node__pool")
    for number, pod in enumerate(pods.order_by("created_at")):
        _measure(pod, number, now)
    for node in Node.objects.filter(pool__name="train", state="ready"):
        devices = [[0, 4] for _ in range(node.gpus)]
        for allocation in node.allocations.select_related("pod__workload"):
            for n in allocation.devices:
                busy = 0 if allocation.pod.workload.name in IDLE else (870 - 40 * n) % 1000
                devices[n] = [busy, 61_000 - 900 * n]
        NodeUtilization.objects.create(node=node, at=now, devices=devices)


def _measure(pod: Pod, number: int, now: datetime) -> None:
    gpus, seen = len(pod.allocation.devices), pod.node.pool.name == "train"
    idle = pod.workload.name in IDLE
    busy = 0 if idle else 60 + number % 5 * 7
    make.used(
        pod, *[busy if seen else None] * gpus, cpu=1100 + 100 * (number % 4), memory=2500,
        gpu_memory=(61_000 - 900 * number) if seen else None,
        busy_at=pod.started_at if idle and seen else None,
    )  # fmt: skip
    seconds = (now - pod.allocation.bound_at).total_seconds()
    for step, count in ((60, MINUTES), (3600, HOURS if number < 8 else 1)):
        for back in range(min(count, int(seconds // step))):
            wave = math.sin((back + number) / 5)
            make.past_utilization(
                pod, now - timedelta(seconds=step * back), step=step, cpu=round(1100 + 500 * wave),
                memory=round(2500 + 300 * wave), gpus=gpus if seen else 0,
                busy=0 if idle else round(busy + 20 * wave), gpu_memory=58_000 if seen else None,
            )  # fmt: skip
