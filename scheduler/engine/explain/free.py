"""Free capacity on the nodes that match a gang's roles, in the units of its request."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from berth.core.values.amounts import MILLI, RESOURCES
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import (
    Arrangement,
    BoardRole,
    Gang,
    ReplicaRequest,
    arrangements,
    pod_gpu_milli,
)
from scheduler.engine.board.ledger import CPU, GPU, KINDS
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.model import NodeState, Pod
from scheduler.engine.placement.find_room import place_arrangement
from scheduler.engine.placement.overcommit import may_overcommit
from scheduler.engine.placement.slots import UsableCapacity

GPU_MEMORY = "gpu_memory_mib"
CLOSED = (NodeState.CORDONED, NodeState.DRAINING)


class ComparisonUnits(NamedTuple):
    """How a request is compared with free capacity."""

    by_gpu_memory: bool  # True if GPU amounts are in MiB of GPU memory instead of milli-GPU
    by_requests: bool  # True if CPU and memory are compared by requests instead of limits


class NodeView:
    """Free capacity on ready nodes that match at least one of the roles.

    Amounts are in milli-GPU, milli-CPU and MiB, unless the units say otherwise. A view is valid only until a
    pod is placed or removed.
    """

    def __init__(
        self,
        nodes: Nodes,
        masks: Sequence[bytes | None],
        units: ComparisonUnits,
        usable: Sequence[int] | None = None,
    ) -> None:
        self.nodes, self.units, self._masks = nodes, units, masks
        self.usable: Sequence[int] = (
            [i for i, ready in enumerate(nodes.ready) if ready and self._is_matching_node(i)]
            if usable is None
            else usable
        )
        self._totals: dict[int, int] = {}
        self._blocks: dict[tuple[int, bool], int] = {}
        self._elsewhere: dict[int, dict[str, int]] = {}

    @cached_property
    def usable_nodes(self) -> frozenset[int]:
        return frozenset(self.usable)

    def restricted_to(self, usable: Sequence[int]) -> "NodeView":
        """Return a view that contains only the nodes in `usable`."""
        return NodeView(self.nodes, self._masks, self.units, usable)

    def total(self, kind: int) -> int:
        if kind not in self._totals:
            column = self._free_by_node(kind)
            self._totals[kind] = (
                sum(self.free_amount_on_node(i, kind) for i in self.usable)
                if column is None
                else sum(free for i in self.usable if (free := column[i]) > 0)
            )
        return self._totals[kind]

    def largest_block(self, kind: int, shared: bool) -> int:
        """Return the largest free block on a node: whole devices or, if `shared`, a part of one device."""
        key = kind, shared
        if key not in self._blocks:
            self._blocks[key] = max(
                (self._largest_block_on_node(i, kind, shared) for i in self.usable), default=0
            )
        return self._blocks[key]

    def unavailable_amounts(self, kind: int) -> dict[str, int]:
        """Return how much stopping pods use, and how much is free on cordoned or draining nodes."""
        if kind not in self._elsewhere:
            leaving = sum(self._leaving_pod_amount(i, kind) for i in self.usable) if self.nodes.leaving else 0
            cordoned = sum(
                self.free_amount_on_node(i, kind)
                for i, node in enumerate(self.nodes.nodes)
                if node.state in CLOSED and self._is_matching_node(i)
            )
            result = {"leaving": leaving, "cordoned": cordoned}
            self._elsewhere[kind] = {name: amount for name, amount in result.items() if amount}
        return self._elsewhere[kind]

    def free_amount_on_node(self, i: int, kind: int) -> int:
        column = self._free_by_node(kind)
        if column is None:
            return sum(self.device_memory(i, free) for free in self.nodes.devices[i])
        return max(0, column[i])

    def _free_by_node(self, kind: int) -> Sequence[int] | None:
        """Return the free amount on each node, which can be negative, or None if GPUs are requested
        by memory.
        """
        nodes = self.nodes
        if kind == GPU:
            return None if self.units.by_gpu_memory else nodes.gpu
        if self.units.by_requests:
            return nodes.cpu_unrequested if kind == CPU else nodes.memory_unrequested
        return nodes.cpu if kind == CPU else nodes.memory

    def device_memory(self, i: int, milli: int) -> int:
        """Return the GPU memory in MiB of `milli` thousandths of one device."""
        return max(0, milli) * self.nodes.nodes[i].gpu_memory_mib // MILLI

    def amount_freed_by(self, part: BoardRole, pod: Pod, kind: int) -> int:
        """Return the amount that stopping a pod would free on the usable nodes."""
        i = self.nodes.index[pod.node]
        if i not in self.usable_nodes:
            return 0
        if kind == GPU:
            if self.units.by_gpu_memory:
                return self.device_memory(i, pod.milli) * len(pod.devices)
            return pod_gpu_milli(pod)
        if self.units.by_requests:
            return part.amounts[kind]
        return part.request.limit_cpu if kind == CPU else part.request.limit_memory_mib

    def _is_matching_node(self, i: int) -> bool:
        return any(mask is None or mask[i] for mask in self._masks)

    def _leaving_pod_amount(self, i: int, kind: int) -> int:
        pods = self.nodes.leaving.get(i)
        if pods is None or self.units.by_requests:
            return 0
        if kind == GPU:
            devices = self.nodes.devices[i]
            amounts = [min(max(0, devices[device]), milli) for device, milli in pods.devices.items()]
            if self.units.by_gpu_memory:
                return sum(self.device_memory(i, milli) for milli in amounts)
            return sum(amounts)
        return min(self.free_amount_on_node(i, kind), pods.cpu if kind == CPU else pods.memory)

    def _largest_block_on_node(self, i: int, kind: int, shared: bool) -> int:
        nodes = self.nodes
        if kind != GPU:
            return self.free_amount_on_node(i, kind)
        if self.units.by_gpu_memory:
            return max((self.device_memory(i, free) for free in nodes.devices[i]), default=0)
        whole = nodes.whole[i] * MILLI
        return max(whole, *nodes.devices[i]) if shared and nodes.devices[i] else whole


class FreeCapacity:
    """Resources that an arrangement requests, compared with the capacity that is free for it."""

    def __init__(self, arrangement: Arrangement, view: NodeView) -> None:
        self.arrangement, self.view = arrangement, view

    @classmethod
    def for_gang(cls, board: Board, gang: Gang) -> "FreeCapacity":
        """Return the free capacity for the gang's first arrangement."""
        arrangement = next(arrangements(gang))
        requests = [need.part.request for need in arrangement if need.part.request.devices]
        by_gpu_memory = bool(requests) and all(request.gpu_memory_mib for request in requests)
        units, masks = (
            ComparisonUnits(by_gpu_memory, may_overcommit(gang)),
            tuple(n.part.mask for n in arrangement),
        )
        views = board.nodes.views
        if (masks, units) not in views:
            views[masks, units] = NodeView(board.nodes, masks, units)
        view = views[masks, units]
        assert isinstance(view, NodeView)
        return cls(arrangement, view)

    @property
    def usable(self) -> Sequence[int]:
        return self.view.usable

    def restricted_to(self, usable: Sequence[int]) -> "FreeCapacity":
        return FreeCapacity(self.arrangement, self.view.restricted_to(usable))

    def total(self, kind: int) -> int:
        return self.view.total(kind)

    def resource(self, kind: int) -> str:
        return GPU_MEMORY if kind == GPU and self.view.units.by_gpu_memory else RESOURCES[kind]

    def main_resource(self) -> int:
        return next((kind for kind in KINDS if self.requested_amount(kind)), GPU)

    def replica_amount(self, part: BoardRole, kind: int) -> int:
        request, units = part.request, self.view.units
        if kind == GPU:
            return request.gpu_memory_mib * request.devices if units.by_gpu_memory else part.amounts[GPU]
        if units.by_requests:
            return request.cpu if kind == CPU else request.memory_mib
        return request.limit_cpu if kind == CPU else request.limit_memory_mib

    def requested_amount(self, kind: int) -> int:
        return self._requested_amounts[kind]

    @cached_property
    def _requested_amounts(self) -> list[int]:
        return [
            sum(self.replica_amount(need.part, kind) * need.count for need in self.arrangement)
            for kind in KINDS
        ]

    def missing_amount(self, kind: int) -> int:
        return max(0, self.requested_amount(kind) - self.total(kind))

    def short_resources(self) -> list[int]:
        """Return the insufficient resources, sorted by the missing fraction of the request, largest first."""
        short = [kind for kind in KINDS if self.missing_amount(kind)]
        return sorted(short, key=lambda kind: -self.missing_amount(kind) / self.requested_amount(kind))

    def replicas_on_node(self, i: int, part: BoardRole, kind: int) -> int:
        """Return how many replicas of the role fit on the node, considering only this resource."""
        nodes, request = self.view.nodes, part.request
        if part.mask is not None and not part.mask[i]:
            return 0
        if kind != GPU:
            return self.view.free_amount_on_node(i, kind) // self.replica_amount(part, kind)
        milli = nodes.device_share_milli(i, request)
        return sum(max(0, free) // milli for free in nodes.devices[i]) // request.devices

    def numbers(self, kind: int) -> dict[str, int | float | str | None]:
        shared = all(need.part.milli < MILLI for need in self.arrangement if need.part.request.devices)
        return {
            "resource": self.resource(kind),
            "requested": self.requested_amount(kind),
            "free": self.total(kind),
            "biggest_block": self.view.largest_block(kind, shared),
        }


def fits_now(board: Board, gang: Gang) -> bool:
    """Return whether any of the gang's arrangements fits into free capacity, ignoring queue limits.

    Stopping pods and booting nodes count as free.
    """
    start = board.log_position()
    fits = any(
        place_arrangement(board, gang, arrangement, capacity)
        for capacity in (UsableCapacity.LEAVING, UsableCapacity.BOOTING)
        for arrangement in arrangements(gang)
    )
    board.rewind(start)
    return fits


def fits_without_topology(board: Board, gang: Gang, arrangement: Arrangement) -> bool:
    """Return whether the replicas fit if topology constraints are ignored."""
    start = board.log_position()
    fits = place_arrangement(
        board,
        gang,
        tuple(ReplicaRequest(need.part, need.count) for need in arrangement),
        UsableCapacity.LEAVING,
    )
    board.rewind(start)
    return fits
