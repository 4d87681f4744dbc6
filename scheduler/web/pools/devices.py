"""Map of a node's devices and the workloads on each device, without names of hidden workloads."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings

from berth.core.values.amounts import MILLI
from berth.server.web.charts.bars import WIDTH
from berth.server.web.charts.hues import OTHER_PROJECTS_HUE, project_hue
from pools.models import Node, NodePool
from pools.models.node import ALIVE, PENDING
from projects.access import visible_projects
from projects.actor import Actor
from projects.models import Pod, Workload
from projects.queries.idle_gpus import MAX_MEASUREMENT_AGE, idle_since
from scheduler.models import Allocation, Reservation
from scheduler.reports.utilization.summary import DeviceMeasurements, devices_by_node


@dataclass(frozen=True, slots=True)
class AllocatedPart:
    """Part of a device that is allocated to a pod. `pod` is None if its project is hidden from the user."""

    pod: Pod | None
    milli: int
    hue: str

    @property
    def height(self) -> int:
        return round(WIDTH * self.milli / MILLI)


@dataclass(slots=True)
class DeviceMap:
    index: int
    holders: list[AllocatedPart] = field(default_factory=list)
    reserved_for: str = ""  # handle of the workload that the device is reserved for
    reserved_id: str = ""  # the workload's ID, or empty if the workload is hidden
    reserved_hue: str = ""  # colour of the workload's project
    reserved_milli: int = 0
    is_booting: bool = False  # True if the node is not ready yet
    bound_at: datetime | None = None  # time at which the latest holder was bound
    measured: DeviceMeasurements | None = None  # latest measurements of the device, if any
    is_unused: bool = False  # True if the device's only workload has had idle GPUs for some time
    idle_below: int = 0  # utilization in thousandths below which a device is idle

    @property
    def allocated(self) -> int:
        return sum(holder.milli for holder in self.holders)

    @property
    def free(self) -> int:
        return MILLI - self.allocated

    @property
    def stacked(self) -> list[tuple[int, AllocatedPart]]:
        """The parts of the device from bottom to top, each with the position of its top edge."""
        result, top = [], WIDTH
        for holder in self.holders:
            top -= holder.height
            result.append((top, holder))
        return result

    @property
    def is_idle(self) -> bool:
        busy = self.measured.busy_milli if self.measured else None
        return bool(self.holders) and busy is not None and busy < self.idle_below

    @property
    def workload(self) -> Workload | None:
        """The device's only workload, or None if the device has no workload, several workloads or a hidden
        workload.
        """
        workloads = {holder.pod.workload if holder.pod else None for holder in self.holders}
        return workloads.pop() if len(workloads) == 1 else None

    @property
    def workload_ids(self) -> str:
        """IDs of the visible workloads on the device, or of the workload that it is reserved for."""
        allocated = (str(holder.pod.workload_id) for holder in self.holders if holder.pod)
        return " ".join(dict.fromkeys(allocated)) or self.reserved_id

    @property
    def label(self) -> str:
        if not self.holders:
            states = ["booting"] if self.is_booting else []
            states += [f"reserved for {self.reserved_for}"] if self.reserved_for else []
            return f"GPU {self.index}: {', '.join(states) or 'free'}"
        names = ", ".join(
            f"{h.pod.workload.project.name}/{h.pod.name}" if h.pod else "another project"
            for h in self.holders
        )
        return f"GPU {self.index}: {names}{', idle' if self.is_idle or self.is_unused else ''}"


@dataclass(slots=True)
class NodeMap:
    node: Node
    devices: list[DeviceMap]
    others: list[AllocatedPart] = field(default_factory=list)  # pods without a GPU
    cpu_milli: int = 0
    memory_mib: int = 0
    pods: int = 0

    @property
    def is_booting(self) -> bool:
        return self.node.state in PENDING

    @property
    def allocated(self) -> int:
        return sum(device.allocated for device in self.devices)

    @property
    def reserved_projects(self) -> list[str]:
        """Names of the projects with reserved devices. Hidden projects share one name."""
        return sorted(
            {device.reserved_for.partition("/")[0] for device in self.devices if device.reserved_for}
        )

    @property
    def reservations(self) -> list[tuple[str, int]]:
        """Workloads with reserved devices, each with the number of devices."""
        return list(Counter(device.reserved_for for device in self.devices if device.reserved_for).items())


def pool_node_maps(actor: Actor, pools: Iterable[NodePool]) -> list[NodeMap]:
    """Return the live nodes' device maps, ordered by pool and ordinal."""
    return build_node_maps(
        actor, Node.objects.filter(pool__in=list(pools), state__in=ALIVE).select_related("pool")
    )


def build_node_maps(actor: Actor, nodes: Iterable[Node]) -> list[NodeMap]:
    """Return one device map per node, in the given order."""
    visible = set(visible_projects(actor).values_list("pk", flat=True))
    maps = {node.pk: NodeMap(node, _unallocated_devices(node)) for node in nodes}
    _add_allocations(maps, visible)
    _add_reservations(maps, visible)
    return list(maps.values())


def measured_node_maps(
    actor: Actor, nodes: Iterable[Node], now: datetime, max_age: timedelta
) -> list[NodeMap]:
    """Return the nodes' device maps, with each device's latest measurements."""
    maps = build_node_maps(actor, nodes)
    measured_nodes = [node_map.node for node_map in maps]
    measured, current = (devices_by_node(measured_nodes, now, age) for age in (max_age, MAX_MEASUREMENT_AGE))
    since = now - MAX_MEASUREMENT_AGE
    for node_map in maps:
        by_index = {device.index: device for device in measured.get(node_map.node.pk, ())}
        for device in node_map.devices:
            device.measured = by_index.get(device.index)
            if node_map.node.pk in current and device.bound_at is not None and device.bound_at <= since:
                device.idle_below = 10 * settings.BERTH_IDLE_GPU_PERCENT
    return maps


def mark_unused_devices(maps: Iterable[NodeMap], now: datetime) -> int:
    """Mark devices whose only workload is visible and has idle GPUs. Return the number of marked devices."""
    devices = [device for node_map in maps for device in node_map.devices]
    held = [(device, device.workload) for device in devices if device.holders]
    idle = idle_since({workload.pk for _, workload in held if workload is not None}, now)
    for device, workload in held:
        device.is_unused = workload is not None and workload.pk in idle
    return sum(device.is_unused for device in devices)


def _unallocated_devices(node: Node) -> list[DeviceMap]:
    is_booting = node.state in PENDING
    return [DeviceMap(index, is_booting=is_booting) for index in range(node.gpus)]


def build_legend(maps: Iterable[NodeMap]) -> list[tuple[str, str, int, int]]:
    """Return (hue, name, allocated, reserved) for each visible project with devices, in milli-GPU.

    Hidden projects share one entry at the end.
    """
    allocated, reserved = Counter[tuple[bool, str, str]](), Counter[tuple[bool, str, str]]()
    for node_map in maps:
        for device in node_map.devices:
            for holder in device.holders:
                name = holder.pod.workload.project.name if holder.pod else "Other projects"
                allocated[holder.pod is None, name, holder.hue] += holder.milli
            if device.reserved_hue:
                is_hidden = device.reserved_hue == OTHER_PROJECTS_HUE
                name = "Other projects" if is_hidden else device.reserved_for.partition("/")[0]
                reserved[is_hidden, name, device.reserved_hue] += device.reserved_milli
    projects = sorted(allocated.keys() | reserved.keys())
    return [(key[2], key[1], allocated[key], reserved[key]) for key in projects]


def _add_allocations(maps: dict[int, NodeMap], visible: set[int]) -> None:
    rows = (
        Allocation.objects.filter(released_at__isnull=True, node__in=list(maps))
        .select_related("pod__workload__project")
        .order_by("node_id", "pod__workload__project__name", "pod__workload__name", "pk")
    )
    for row in rows:
        node_map, project = maps[row.node_id], row.pod.workload.project
        seen = project.pk in visible
        holder = AllocatedPart(
            row.pod if seen else None, row.gpu_milli, project_hue(project.pk) if seen else OTHER_PROJECTS_HUE
        )
        node_map.cpu_milli += row.cpu_milli
        node_map.memory_mib += row.memory_mib
        node_map.pods += 1
        if not row.devices:
            node_map.others.append(holder)
        for index in row.devices:
            if index < len(node_map.devices):
                device = node_map.devices[index]
                device.holders.append(holder)
                device.bound_at = max(filter(None, (device.bound_at, row.bound_at)))


def _add_reservations(maps: dict[int, NodeMap], visible: set[int]) -> None:
    rows = Reservation.objects.filter(node__in=list(maps)).select_related("workload__project").order_by("pk")
    for row in rows:
        seen = row.workload.project_id in visible
        for index in row.devices:
            devices = maps[row.node_id].devices
            if index < len(devices):
                devices[index].reserved_milli += row.gpu_milli
                devices[index].reserved_for = row.workload.handle if seen else "another project"
                devices[index].reserved_id = str(row.workload_id) if seen else ""
                devices[index].reserved_hue = (
                    project_hue(row.workload.project_id) if seen else OTHER_PROJECTS_HUE
                )
