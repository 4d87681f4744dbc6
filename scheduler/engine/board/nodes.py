"""Free resources of each node, with indexes by free devices.

Resources of stopping pods count as free. `leaving` is the part that these pods still use, and `can_start_now`
says whether a replica can start without waiting for it.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from berth.core.values.amounts import MILLI
from scheduler.engine.model import Node, NodeState, Request


class Slot(NamedTuple):
    """Location of one replica: a node and some of its devices."""

    node: int
    devices: tuple[int, ...]
    milli: int  # fraction of each device, in thousandths


class NodeHold(NamedTuple):
    """Nodes held for one workload.

    Other workloads may use them only until `until`, or not at all if `until` is None.
    """

    name: str
    nodes: frozenset[int]
    until: int | None


@dataclass(slots=True)
class LeavingPods:
    """Resources that stopping pods still use on one node."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    devices: dict[int, int] = field(default_factory=dict)


class Nodes:
    """The pool's nodes as parallel lists with one entry per node, in order of node name."""

    def __init__(self, nodes: Sequence[Node], cpu_load_limit: int = MILLI) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.index = {node.name: i for i, node in enumerate(self.nodes)}
        self.cpu_load_limit = cpu_load_limit
        self.ready = [node.state is NodeState.READY for node in self.nodes]
        self.booting = [node.state is NodeState.BOOTING for node in self.nodes]
        # Each node's CPU minus the CPU limits of placed pods.
        self.cpu = [node.cpu * cpu_load_limit // MILLI for node in self.nodes]
        self.memory = [node.memory_mib for node in self.nodes]
        self.cpu_unrequested = list(self.cpu)  # each node's CPU minus the CPU requests of placed pods
        self.memory_unrequested = list(self.memory)
        self.pods = [node.max_pods for node in self.nodes]
        self.devices = [[MILLI] * node.gpus for node in self.nodes]
        for devices, node in zip(self.devices, self.nodes, strict=True):
            for device in node.foreign_devices:
                devices[device] = 0
        self.gpu = [node.usable_gpus * MILLI for node in self.nodes]
        self.whole = [node.usable_gpus for node in self.nodes]  # number of devices that are entirely free
        self.leaving: dict[int, LeavingPods] = {}
        # Changed nodes in order of change; None if changes are not recorded.
        self.touched: list[int] | None = None
        # Cache of values that depend only on the nodes and the pool.
        self.static_cache: dict[Hashable, Any] = {}
        # Cache of values that depend on free capacity, discarded when a pod is placed or removed.
        self.views: dict[Hashable, object] = {}
        self._free: tuple[int, int, int] | None = None
        self._capacity: tuple[int, int, int] | None = None
        self._by_whole: list[list[int]] | None = None
        self._shared: set[int] = set()

    @property
    def nodes_by_free_devices(self) -> list[list[int]]:
        """Indexes of the ready nodes, grouped by their number of entirely free devices (0, 1, 2, ...)."""
        if self._by_whole is None:
            self._by_whole = [[] for _ in range(max((node.gpus for node in self.nodes), default=0) + 1)]
            for i, count in enumerate(self.whole):
                if self.ready[i]:
                    self._by_whole[count].append(i)
                    self._update_partly_free_nodes(i)
        return self._by_whole

    @property
    def partly_free_nodes(self) -> set[int]:
        """Ready nodes with a partly free device."""
        return self._shared if self.nodes_by_free_devices else set()

    def _update_partly_free_nodes(self, i: int) -> None:
        for free in self.devices[i]:
            if 0 < free < MILLI:
                self._shared.add(i)
                return
        self._shared.discard(i)

    def capacity(self) -> tuple[int, int, int]:
        """Return the capacity of ready and booting nodes, which is divided into fair shares."""
        if self._capacity is None:
            self._capacity = self._sum_capacity()
        return self._capacity

    def _sum_capacity(self) -> tuple[int, int, int]:
        counted = [node for node, r, b in zip(self.nodes, self.ready, self.booting, strict=True) if r or b]
        return (
            sum(node.usable_gpus * MILLI for node in counted),
            sum(node.cpu * self.cpu_load_limit // MILLI for node in counted),
            sum(node.memory_mib for node in counted),
        )

    def free_resources(self) -> tuple[int, int, int]:
        """Return the total free resources of ready nodes, cached until a pod is placed or removed."""
        if self._free is None:
            gpu, cpu, memory = (
                sum([free for free, ready in zip(kind, self.ready, strict=True) if ready and free > 0])
                for kind in (self.gpu, self.cpu, self.memory)
            )
            self._free = gpu, cpu, memory
        return self._free

    def device_share_milli(self, i: int, request: Request) -> int:
        """Return the fraction of a device that the replica needs on the node, in thousandths.

        A replica that needs more than 1000 does not fit.
        """
        if not request.gpu_memory_mib:
            return request.gpu
        has = self.nodes[i].gpu_memory_mib
        return -(-MILLI * request.gpu_memory_mib // has) if has else MILLI + 1

    def allocate(self, i: int, devices: Sequence[int], milli: int, request: Request) -> None:
        self._adjust_node(i, request, 1)
        if devices:
            self._adjust_devices(i, devices, -milli)

    def block_devices(self, node: str, devices: Sequence[int], milli: int) -> None:
        """Allocate devices and a pod slot to a pod whose other requests are unknown."""
        self.add_missing_devices(self.index[node], devices)
        self.allocate(self.index[node], devices, milli, Request())

    def add_missing_devices(self, i: int, devices: Sequence[int]) -> None:
        """Add devices that pods use although the node no longer reports them.

        The added devices have no free capacity.
        """
        free = self.devices[i]
        free.extend([0] * (max(devices, default=-1) + 1 - len(free)))

    def release(self, i: int, devices: Sequence[int], milli: int, request: Request) -> None:
        self._adjust_node(i, request, -1)
        if devices:
            self._adjust_devices(i, devices, milli)

    def _adjust_node(self, i: int, request: Request, sign: int) -> None:
        self._free = None
        if self.views:
            self.views.clear()
        self.cpu[i] -= sign * request.limit_cpu
        self.memory[i] -= sign * request.limit_memory_mib
        self.cpu_unrequested[i] -= sign * request.cpu
        self.memory_unrequested[i] -= sign * request.memory_mib
        self.pods[i] -= sign
        if self.touched is not None:
            self.touched.append(i)

    def _adjust_devices(self, i: int, devices: Sequence[int], milli: int) -> None:
        free = self.devices[i]
        was = whole = self.whole[i]
        for device in devices:
            before = free[device]
            after = free[device] = before + milli
            whole += (after >= MILLI) - (before >= MILLI)
        self.gpu[i] += milli * len(devices)
        self.whole[i] = whole
        if self._by_whole is None or not self.ready[i]:
            return
        if whole != was:
            bucket = self._by_whole[was]
            del bucket[bisect_left(bucket, i)]
            insort(self._by_whole[whole], i)
        if milli % MILLI:
            self._update_partly_free_nodes(i)

    def mark_leaving(
        self, i: int, devices: Sequence[int], milli: int, request: Request, sign: int = 1
    ) -> None:
        """Add a stopping pod's resources to the resources that will become free, or subtract them if `sign`
        is -1.
        """
        leaving_pods = self.leaving.setdefault(i, LeavingPods())
        leaving_pods.cpu += sign * request.limit_cpu
        leaving_pods.memory += sign * request.limit_memory_mib
        leaving_pods.pods += sign
        for device in devices:
            leaving_pods.devices[device] = leaving_pods.devices.get(device, 0) + sign * milli
        if not leaving_pods.pods:
            del self.leaving[i]

    def can_start_now(self, i: int, devices: Sequence[int], milli: int, request: Request) -> bool:
        """Return whether the resources are free now. Must be called before they are allocated."""
        if not self.ready[i]:
            return False
        leaving_pods = self.leaving.get(i)
        return leaving_pods is None or (
            self.cpu[i] - leaving_pods.cpu >= request.limit_cpu
            and self.memory[i] - leaving_pods.memory >= request.limit_memory_mib
            and self.pods[i] - leaving_pods.pods >= 1
            and all(self.devices[i][d] - leaving_pods.devices.get(d, 0) >= milli for d in devices)
        )

    def free_now(self, i: int, device: int) -> int:
        leaving_pods = self.leaving.get(i)
        return self.devices[i][device] - (leaving_pods.devices.get(device, 0) if leaving_pods else 0)
