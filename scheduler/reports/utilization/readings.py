"""Measure the utilization of running pods and of their nodes' GPUs."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings

from berth.core.idle_rule import applicable_rule
from berth.core.values.amounts import MILLI
from berth.db.loops.crash_points import assert_no_transaction
from pools.models import Node, NodePool
from pools.models.node import HOSTING
from pools.runtimes.base import DeviceUsage, Measurements, PodUsage, Runtime, RuntimeFailure
from projects.queries.idle_gpus import RUNNING_STATES
from scheduler import models

log = logging.getLogger(__name__)

MAX_GAP = timedelta(minutes=5)  # a longer gap between readings restarts the idle time
MAX_READING_SECONDS = 60.0  # maximum period in seconds that one reading may cover
DeviceMeasurement = tuple[int | None, int | None]  # utilization in thousandths, and memory in MiB
UNMEASURED: DeviceMeasurement = (None, None)


class RunningPod(NamedTuple):
    pod_id: uuid.UUID
    node_id: int
    devices: Sequence[int]
    gpu_milli: int
    started_at: datetime | None
    project_rule: dict[str, Any]
    pool_rule: dict[str, Any]

    @property
    def busy_threshold(self) -> int:
        """Lowest utilization in thousandths at which GPUs count as busy, from the idle rule or the default
        setting.
        """
        rule = applicable_rule(self.project_rule, self.pool_rule)
        return 10 * (settings.BERTH_IDLE_GPU_PERCENT if rule is None else rule.below)


@dataclass(frozen=True, slots=True)
class PodReading:
    """Measurement of one pod over the preceding `seconds` seconds."""

    pod_id: uuid.UUID
    at: datetime
    seconds: float
    cpu_seconds: float
    cpu_milli: int
    memory_mib: int
    devices: tuple[DeviceMeasurement, ...]
    gpu_milli: int
    busy_milli: int | None
    busy_at: datetime | None

    @property
    def gpu_memory_mib(self) -> int | None:
        measured = [memory for _, memory in self.devices if memory is not None]
        return sum(measured) if measured else None


@dataclass(frozen=True, slots=True)
class Readings:
    at: datetime
    pods: tuple[PodReading, ...] = ()
    nodes: Mapping[int, tuple[DeviceMeasurement, ...]] | None = None


def measure_running_pods(now: Callable[[], datetime], runtime_for: Callable[[NodePool], Runtime]) -> Readings:
    """Measure all running pods, skipping runtimes that do not respond."""
    running = [RunningPod._make(row) for row in _running_rows()]
    nodes = {node.pk: node for node in Node.objects.filter(state__in=HOSTING).select_related("pool")}
    before = models.PodUtilization.objects.in_bulk([pod.pod_id for pod in running])
    assert_no_transaction()
    measured = _measure_pods(running, nodes, runtime_for)
    at = now()
    devices_by_node = {
        pk: devices
        for pk, node in nodes.items()
        if (devices := match_devices(node.devices, measured.devices.get(node.instance_id, ())))
    }
    pods = []
    for pod in running:
        use = measured.pods.get(str(pod.pod_id))
        if use is not None:
            node_devices = devices_by_node.get(pod.node_id, ())
            devices = tuple(node_devices[n] if n < len(node_devices) else UNMEASURED for n in pod.devices)
            pods.append(build_reading(pod, use, devices, before.get(pod.pod_id), at))
    return Readings(at, tuple(pods), devices_by_node)


def build_reading(
    pod: RunningPod,
    use: PodUsage,
    devices: tuple[DeviceMeasurement, ...],
    before: models.PodUtilization | None,
    at: datetime,
) -> PodReading:
    """Return a reading. CPU time is counted since the previous reading or the pod's start."""
    since = before.at if before is not None else pod.started_at or at
    elapsed = (at - since).total_seconds()
    used = max(use.cpu_seconds - (before.cpu_seconds if before is not None else 0.0), 0.0)
    busy = _mean_busy_milli(devices)
    return PodReading(
        pod_id=pod.pod_id,
        at=at,
        seconds=min(max(elapsed, 0.0), MAX_READING_SECONDS),
        cpu_seconds=use.cpu_seconds,
        cpu_milli=round(used / elapsed * MILLI) if elapsed > 0 else 0,
        memory_mib=use.memory_mib,
        devices=devices,
        gpu_milli=pod.gpu_milli * sum(busy_milli is not None for busy_milli, _ in devices),
        busy_milli=busy,
        busy_at=_last_busy_at(devices, pod.busy_threshold, before, at),
    )


def match_devices(identities: Sequence[object], uses: Iterable[DeviceUsage]) -> tuple[DeviceMeasurement, ...]:
    """Return the measurements in the order of the node's devices, matched by device ID where possible and
    otherwise by index.
    """
    by_name = {name: use for use in uses for name in (str(use.index), use.identity)}
    matched = [by_name.get(str(identity)) for identity in identities]
    if not any(matched):
        return ()
    return tuple((use.busy_milli, use.memory_mib) if use else UNMEASURED for use in matched)


def _running_rows() -> Iterable[tuple[object, ...]]:
    allocations = models.Allocation.objects.filter(released_at=None, pod__state__in=RUNNING_STATES).order_by(
        "pod_id"
    )
    return allocations.values_list(
        "pod_id", "node_id", "devices", "gpu_milli", "pod__started_at", "pod__workload__project__idle_rule",
        "node__pool__idle_rule",
    )  # fmt: skip


def _measure_pods(
    running: Iterable[RunningPod], nodes: Mapping[int, Node], runtime_for: Callable[[NodePool], Runtime]
) -> Measurements:
    pods: dict[str, list[str]] = defaultdict(list)
    for pod in running:
        if pod.node_id in nodes:
            pods[nodes[pod.node_id].pool.runtime].append(str(pod.pod_id))
    instances: dict[str, list[str]] = defaultdict(list)
    pools: dict[str, NodePool] = {}
    for node in nodes.values():
        pools[node.pool.runtime] = node.pool
        if node.devices:
            instances[node.pool.runtime].append(node.instance_id)
    result = Measurements({}, {})
    for name, pool in sorted(pools.items()):
        try:
            response = runtime_for(pool).measure(pods[name], instances[name])
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("utilization of pods of the runtime %s cannot be measured now: %s", name, error)
            continue
        result = Measurements({**result.pods, **response.pods}, {**result.devices, **response.devices})
    return result


def _mean_busy_milli(devices: Iterable[DeviceMeasurement]) -> int | None:
    measured = [busy for busy, _ in devices if busy is not None]
    return round(sum(measured) / len(measured)) if measured else None


def _last_busy_at(
    devices: Iterable[DeviceMeasurement],
    busy_threshold: int,
    before: models.PodUtilization | None,
    at: datetime,
) -> datetime | None:
    """Return when any of the pod's GPUs was last busy.

    Return `at` if there is no recent reading to compare with. Return None if no GPU is measured.
    """
    measured = [busy for busy, _ in devices if busy is not None]
    if not measured:
        return None
    if max(measured) >= busy_threshold:
        return at
    if before is None or before.busy_at is None or at - before.at > MAX_GAP:
        return at
    return before.busy_at
