"""Free capacity on the nodes that match a gang's roles, in the units of its request."""

from collections.abc import Hashable, Sequence
from functools import cached_property

from berth.core.amounts import MILLI, RESOURCES
from scheduler.engine.actions.overcommit import may_overcommit
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import (
    Arrangement,
    BoardRole,
    Gang,
    ReplicaRequest,
    arrangements,
    pod_milli_gpus,
)
from scheduler.engine.board.ledger import CPU, GPU, KINDS
from scheduler.engine.model import NodeState, Pod
from scheduler.engine.placement.find_room import find_room
from scheduler.engine.placement.spots import Horizon

GPU_MEMORY = "gpu_memory_mib"


class FreeCapacity:
    """Free capacity on the usable nodes: ready nodes that match at least one role of the arrangement.

    Amounts are in milli-GPU, milli-CPU and MiB. If all roles request GPU memory instead of GPUs, the GPU
    amounts are in MiB of GPU memory. Capacity of stopping pods counts as free.
    """

    def __init__(
        self,
        board: Board,
        arrangement: Arrangement,
        by_requests: bool,
        usable: Sequence[int] | None = None,
    ) -> None:
        self.board, self.nodes, self.arrangement = board, board.nodes, arrangement
        self._masks = [need.part.mask for need in arrangement]
        self.usable: Sequence[int] = (
            [i for i, ready in enumerate(self.nodes.ready) if ready and self._matches(i)]
            if usable is None
            else usable
        )
        requests = [need.part.request for need in arrangement if need.part.request.devices]
        self.by_gpu_memory = bool(requests) and all(request.gpu_memory_mib for request in requests)
        self._by_requests = by_requests

    @classmethod
    def of(cls, board: Board, gang: Gang) -> "FreeCapacity":
        """Return the free capacity for the gang's first arrangement.

        A CPU-only workload may start by its requests, so these are compared with what is not requested.
        """
        return cls(board, next(arrangements(gang)), may_overcommit(gang))

    @cached_property
    def signature(self) -> Hashable:
        """A key that is equal for requests with the same usable nodes and units."""
        return self._usable_set, self.by_gpu_memory, self._by_requests

    @cached_property
    def _usable_set(self) -> frozenset[int]:
        return frozenset(self.usable)

    def on(self, usable: Sequence[int]) -> "FreeCapacity":
        """Return the free capacity of some of the nodes."""
        return FreeCapacity(self.board, self.arrangement, self._by_requests, usable)

    def resource(self, kind: int) -> str:
        return GPU_MEMORY if kind == GPU and self.by_gpu_memory else RESOURCES[kind]

    def main_resource(self) -> int:
        return next((kind for kind in KINDS if self.requested(kind)), GPU)

    def replica(self, part: BoardRole, kind: int) -> int:
        """Return the amount that one replica needs: its GPUs, or its CPU and memory limits."""
        request = part.request
        if kind == GPU:
            return request.gpu_memory_mib * request.devices if self.by_gpu_memory else part.amounts[GPU]
        if self._by_requests:
            return request.cpu if kind == CPU else request.memory_mib
        return request.limit_cpu if kind == CPU else request.limit_memory_mib

    def freed_by(self, part: BoardRole, pod: Pod, kind: int) -> int:
        """Return what stopping a pod would free on the usable nodes."""
        i = self.nodes.index[pod.node]
        if i not in self._usable_set:
            return 0
        if kind == GPU:
            return (
                self._device_memory(i, pod.milli) * len(pod.devices)
                if self.by_gpu_memory
                else pod_milli_gpus(pod)
            )
        if self._by_requests:
            return part.amounts[kind]
        return part.request.limit_cpu if kind == CPU else part.request.limit_memory_mib

    def requested(self, kind: int) -> int:
        return sum(self.replica(need.part, kind) * need.count for need in self.arrangement)

    def total(self, kind: int) -> int:
        return self._totals[kind]

    @cached_property
    def _totals(self) -> tuple[int, int, int]:
        if len(self.usable) == sum(self.nodes.ready) and not self.by_gpu_memory and not self._by_requests:
            return self.nodes.free()
        gpu, cpu, memory = (sum(self._on_node(i, kind) for i in self.usable) for kind in KINDS)
        return gpu, cpu, memory

    def short_resources(self) -> list[int]:
        """Return the resources that are short, in descending order of the missing fraction."""
        short = [kind for kind in KINDS if self.requested(kind) > self.total(kind)]
        return sorted(
            short, key=lambda kind: (self.total(kind) - self.requested(kind)) / self.requested(kind)
        )

    def replicas(self, i: int, part: BoardRole, kind: int) -> int:
        """Return how many replicas of the role fit on the node, considering only this resource."""
        nodes, request = self.nodes, part.request
        if part.mask is not None and not part.mask[i]:
            return 0
        if kind != GPU:
            return self._on_node(i, kind) // self.replica(part, kind)
        milli = nodes.milli_on(i, request)
        return sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices

    def numbers(self, kind: int) -> dict[str, int | float | str | None]:
        return {
            "resource": self.resource(kind),
            "requested": self.requested(kind),
            "free": self.total(kind),
            "biggest_block": max((self._largest_block(i, kind) for i in self.usable), default=0),
        }

    def held_elsewhere(self, kind: int) -> dict[str, int]:
        """Return the free amount that stopping pods still hold, and what is free on closed nodes."""
        leaving = sum(self._leaving(i, kind) for i in self.usable) if self.nodes.leaving else 0
        closed = (NodeState.CORDONED, NodeState.DRAINING)
        cordoned = sum(
            self._on_node(i, kind)
            for i, node in enumerate(self.nodes.nodes)
            if node.state in closed and self._matches(i)
        )
        result = {"leaving": leaving, "cordoned": cordoned}
        return {name: amount for name, amount in result.items() if amount}

    def _matches(self, i: int) -> bool:
        return any(mask is None or mask[i] for mask in self._masks)

    def _on_node(self, i: int, kind: int) -> int:
        nodes = self.nodes
        if kind == GPU:
            if self.by_gpu_memory:
                return sum(self._device_memory(i, free) for free in nodes.devices[i])
            return max(0, nodes.gpu[i])
        if self._by_requests:
            return max(0, (nodes.cpu_unrequested if kind == CPU else nodes.memory_unrequested)[i])
        return max(0, (nodes.cpu if kind == CPU else nodes.memory)[i])

    def _device_memory(self, i: int, milli: int) -> int:
        return max(0, milli) * self.nodes.nodes[i].gpu_memory_mib // MILLI

    def _leaving(self, i: int, kind: int) -> int:
        pods = self.nodes.leaving.get(i)
        if pods is None or self._by_requests:
            return 0
        if kind == GPU:
            devices = self.nodes.devices[i]
            held = [min(max(0, devices[device]), milli) for device, milli in pods.devices.items()]
            return sum(self._device_memory(i, milli) for milli in held) if self.by_gpu_memory else sum(held)
        return min(self._on_node(i, kind), pods.cpu if kind == CPU else pods.memory)

    def _largest_block(self, i: int, kind: int) -> int:
        """Return the node's largest free block: whole devices or, for shared ones, one device."""
        nodes = self.nodes
        if kind != GPU:
            return self._on_node(i, kind)
        if self.by_gpu_memory:
            return max((self._device_memory(i, free) for free in nodes.devices[i]), default=0)
        whole = nodes.whole[i] * MILLI
        shared = all(need.part.milli < MILLI for need in self.arrangement if need.part.request.devices)
        return max(whole, *nodes.devices[i]) if shared and nodes.devices[i] else whole


def fits_now(board: Board, gang: Gang) -> bool:
    """Return whether some arrangement of the gang fits into free capacity, if limits are ignored."""
    start = board.mark()
    fits = any(
        find_room(board, gang, arrangement, horizon)
        for horizon in (Horizon.LEAVING, Horizon.BOOTING)
        for arrangement in arrangements(gang)
    )
    board.rewind(start)
    return fits


def fits_anywhere(board: Board, gang: Gang, arrangement: Arrangement) -> bool:
    """Return whether the replicas fit if topology constraints are ignored."""
    start = board.mark()
    fits = find_room(
        board, gang, tuple(ReplicaRequest(need.part, need.count) for need in arrangement), Horizon.LEAVING
    )
    board.rewind(start)
    return fits
