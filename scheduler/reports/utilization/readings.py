"""Measure running pods and their nodes' GPUs."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings

from berth.core.amounts import MILLI
from berth.db.crash_points import outside_transactions
from pools.models import Node, NodePool
from pools.models.node import HOSTING
from pools.runtimes.base import DeviceUse, Measured, PodUse, Runtime, RuntimeFailure
from projects.idle_gpus import RUNS
from scheduler import models

log = logging.getLogger(__name__)

AWAY = timedelta(minutes=5)  # longest gap between readings that does not restart the idle time
LONGEST_SECONDS = 60.0  # maximum period that one reading covers
OfDevice = tuple[int | None, int | None]  # busy thousandths, MiB
UNKNOWN: OfDevice = (None, None)


class Running(NamedTuple):
    pod_id: uuid.UUID
    node_id: int
    devices: Sequence[int]
    gpu_milli: int
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A measurement of one pod that covers `seconds`."""

    pod_id: uuid.UUID
    at: datetime
    seconds: float
    cpu_seconds: float
    cpu_milli: int
    memory_mib: int
    devices: tuple[OfDevice, ...]
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
    pods: tuple[Reading, ...] = ()
    nodes: Mapping[int, tuple[OfDevice, ...]] | None = None


def look(now: Callable[[], datetime], runtime_of: Callable[[NodePool], Runtime]) -> Readings:
    """Read the utilization of all running pods, except on runtimes that are not responding."""
    running = [Running._make(row) for row in _running_rows()]
    nodes = {node.pk: node for node in Node.objects.filter(state__in=HOSTING).select_related("pool")}
    before = models.PodUtilization.objects.in_bulk([each.pod_id for each in running])
    outside_transactions()
    measured = _measure_pods(running, nodes, runtime_of)
    at = now()
    devices_by_node = {
        pk: devices
        for pk, node in nodes.items()
        if (devices := on_node(node.devices, measured.devices.get(node.instance_id, ())))
    }
    pods = []
    for pod in running:
        use = measured.pods.get(str(pod.pod_id))
        if use is not None:
            node_devices = devices_by_node.get(pod.node_id, ())
            devices = tuple(node_devices[n] if n < len(node_devices) else UNKNOWN for n in pod.devices)
            pods.append(reading(pod, use, devices, before.get(pod.pod_id), at))
    return Readings(at, tuple(pods), devices_by_node)


def reading(
    pod: Running,
    use: PodUse,
    devices: tuple[OfDevice, ...],
    before: models.PodUtilization | None,
    at: datetime,
) -> Reading:
    """Return a reading. CPU time counts from the previous reading, or from the pod's start."""
    since = before.at if before is not None else pod.started_at or at
    passed = (at - since).total_seconds()
    used = max(use.cpu_seconds - (before.cpu_seconds if before is not None else 0.0), 0.0)
    busy = _mean_busy(devices)
    return Reading(
        pod_id=pod.pod_id,
        at=at,
        seconds=min(max(passed, 0.0), LONGEST_SECONDS),
        cpu_seconds=use.cpu_seconds,
        cpu_milli=round(used / passed * MILLI) if passed > 0 else 0,
        memory_mib=use.memory_mib,
        devices=devices,
        gpu_milli=pod.gpu_milli * sum(busy_milli is not None for busy_milli, _ in devices),
        busy_milli=busy,
        busy_at=_busy_at(busy, before, at),
    )


def on_node(identities: Sequence[object], uses: Iterable[DeviceUse]) -> tuple[OfDevice, ...]:
    """Return the measurements in the order of the node's devices, matched by identity or index."""
    by_name = {name: use for use in uses for name in (str(use.index), use.identity)}
    matched = [by_name.get(str(identity)) for identity in identities]
    if not any(matched):
        return ()
    return tuple((use.busy_milli, use.memory_mib) if use else UNKNOWN for use in matched)


def _running_rows() -> Iterable[tuple[object, ...]]:
    held = models.Allocation.objects.filter(released_at=None, pod__state__in=RUNS).order_by("pod_id")
    return held.values_list("pod_id", "node_id", "devices", "gpu_milli", "pod__started_at")


def _measure_pods(
    running: Iterable[Running], nodes: Mapping[int, Node], runtime_of: Callable[[NodePool], Runtime]
) -> Measured:
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
    result = Measured({}, {})
    for name, pool in sorted(pools.items()):
        try:
            response = runtime_of(pool).measure(pods[name], instances[name])
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("utilization of pods of the runtime %s cannot be measured now: %s", name, error)
            continue
        result = Measured({**result.pods, **response.pods}, {**result.devices, **response.devices})
    return result


def _mean_busy(devices: Iterable[OfDevice]) -> int | None:
    """Return the mean utilization of the measured devices."""
    measured = [busy for busy, _ in devices if busy is not None]
    return round(sum(measured) / len(measured)) if measured else None


def _busy_at(busy: int | None, before: models.PodUtilization | None, at: datetime) -> datetime | None:
    if busy is None:
        return None
    if busy >= settings.BERTH_IDLE_GPU_PERCENT * 10:
        return at
    if before is None or before.busy_at is None or at - before.at > AWAY:
        return at
    return before.busy_at
