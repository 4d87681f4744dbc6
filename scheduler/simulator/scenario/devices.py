"""Assign a scenario's pods to their nodes' devices, and reject pods that do not fit."""

from dataclasses import dataclass

from berth.core.problems import Problem
from berth.core.values.amounts import MILLI
from scheduler.engine.model import Node, PodState, Request, Strategy

# Reservations may overlap with pods in these states. A reserved pod starts only after these pods have ended.
RESERVABLE_STATES = (PodState.STOPPING, PodState.STUCK)
ALLOCATED_STATES = (PodState.RUNNING, PodState.STARTING, *RESERVABLE_STATES)


def device_share_milli(node: Node, request: Request) -> int | None:
    """Return the fraction of a device that a replica needs, in thousandths.

    Return None if no device is large enough.
    """
    if not request.gpu_memory_mib:
        return request.gpu
    if not 0 < request.gpu_memory_mib <= node.gpu_memory_mib:
        return None
    return -(-MILLI * request.gpu_memory_mib // node.gpu_memory_mib)


@dataclass(slots=True)
class _NodeRoom:
    devices: list[int]
    cpu: int
    memory_mib: int
    pods: int

    def find_problem(
        self, path: str, node: Node, devices: tuple[int, ...], milli: int, request: Request
    ) -> Problem | None:
        for device in devices:
            if not fits(self.devices[device], milli):
                spec, has = f"{milli} thousandths", f"{self.devices[device]} left on device {device}"
                return Problem(f"{path}.devices", f"more than {node.name} has", spec, has)
        if request.cpu > self.cpu:
            return Problem(path, f"more CPU than {node.name} has", f"{request.cpu}m", f"{self.cpu}m left")
        if request.memory_mib > self.memory_mib:
            spec, has = f"{request.memory_mib} MiB", f"{self.memory_mib} MiB left"
            return Problem(path, f"more memory than {node.name} has", spec, has)
        if self.pods < 1:
            return Problem(path, f"more pods than {node.name} allows", "", f"{node.max_pods}")
        return None

    def allocate(self, devices: tuple[int, ...], milli: int, request: Request) -> None:
        for device in devices:
            self.devices[device] -= milli
        self.cpu -= request.cpu
        self.memory_mib -= request.memory_mib
        self.pods -= 1


def fits(left: int, milli: int) -> bool:
    """Return whether a device with `left` thousandths free has room for `milli` thousandths."""
    return left == MILLI if milli == MILLI else left >= milli


class DeviceAllocator:
    """Free resources of every node, now and once the stopping pods have ended."""

    def __init__(self, nodes: tuple[Node, ...], strategies: dict[str, Strategy]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.strategies = strategies  # device placement strategy of each pool
        self._current = {node.name: _empty_room(node) for node in nodes}
        self._after_stopping = {node.name: _empty_room(node) for node in nodes}

    def allocate(
        self, path: str, node: Node, state: PodState, devices: tuple[int, ...], request: Request
    ) -> Problem | None:
        """Allocate a pod's resources. Return a problem if the pod does not fit, or None."""
        milli = device_share_milli(node, request)
        if milli is None:
            spec, has = f"{request.gpu_memory_mib} MiB", f"{node.gpu_memory_mib} MiB on a device"
            return Problem(path, f"more GPU memory than a device of {node.name} has", spec, has)
        if problem := _device_list_problem(path, node, devices, request):
            return problem
        rooms = [room[node.name] for room in self._affected_rooms(state)]
        for room in rooms:
            if problem := room.find_problem(path, node, devices, milli, request):
                return problem
        for room in rooms:
            room.allocate(devices, milli, request)
        return None

    def choose(self, node: Node, state: PodState, request: Request) -> tuple[int, ...]:
        """Choose devices for a pod that lists none, following the pool's placement strategy."""
        milli = device_share_milli(node, request) or MILLI
        left = self._affected_rooms(state)[0][node.name].devices
        sign = -1 if self.strategies[node.pool] is Strategy.SPREAD else 1
        fitting = sorted((sign * has, device) for device, has in enumerate(left) if fits(has, milli))
        return tuple(sorted(device for _, device in fitting[: request.devices]))

    def _affected_rooms(self, state: PodState) -> list[dict[str, _NodeRoom]]:
        if state in RESERVABLE_STATES:
            return [self._current]
        return [self._after_stopping] if state is PodState.RESERVED else [self._current, self._after_stopping]


def _empty_room(node: Node) -> _NodeRoom:
    return _NodeRoom([MILLI] * node.gpus, node.cpu, node.memory_mib, node.max_pods)


def _device_list_problem(path: str, node: Node, devices: tuple[int, ...], request: Request) -> Problem | None:
    spec = str(list(devices))
    if len(devices) != request.devices:
        return Problem(
            f"{path}.devices", "does not match the role's number of devices", spec, f"{request.devices}"
        )
    if len(set(devices)) != len(devices):
        return Problem(f"{path}.devices", "lists a device twice", spec)
    if any(device >= node.gpus for device in devices):
        return Problem(f"{path}.devices", f"no such device on {node.name}", spec, f"0 to {node.gpus - 1}")
    return None
