"""Check whether reserved pods could start now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from berth.core.amounts import MILLI, Amounts
from scheduler.engine.board.gang import roles_of
from scheduler.engine.model import Node, NodeState, Pod, Workload
from scheduler.simulator.gangs import HOLDING


class Room:
    """Free resources of one node."""

    def __init__(self, node: Node) -> None:
        self.ready = node.state is NodeState.READY
        self.devices = defaultdict(int, dict.fromkeys(range(node.gpus), MILLI))
        self.cpu, self.memory_mib, self.pods = node.cpu, node.memory_mib, node.max_pods

    def fits(self, pod: Pod, amounts: Amounts) -> bool:
        return (
            self.ready
            and all(self.devices[device] >= pod.milli for device in pod.devices)
            and self.cpu >= amounts.cpu
            and self.memory_mib >= amounts.memory_mib
            and self.pods > 0
        )

    def take(self, pod: Pod, amounts: Amounts, sign: int = 1) -> None:
        for device in pod.devices:
            self.devices[device] -= sign * pod.milli
        self.cpu -= sign * amounts.cpu
        self.memory_mib -= sign * amounts.memory_mib
        self.pods -= sign


def rooms_of(nodes: Iterable[Node], workloads: Iterable[Workload]) -> dict[str, Room]:
    """Return the free resources of every node."""
    rooms = {node.name: Room(node) for node in nodes}
    for workload in workloads:
        if workload.pods:
            amounts = _amounts(workload)
            for pod in workload.pods:
                if pod.state in HOLDING and pod.node in rooms:
                    rooms[pod.node].take(pod, amounts[pod.role])
    return rooms


def all_fit(workload: Workload, pods: Iterable[Pod], rooms: Mapping[str, Room]) -> bool:
    """Allocate resources for all pods or none. Return whether the pods fit."""
    amounts = _amounts(workload)
    allocated: list[Pod] = []
    for pod in pods:
        room = rooms.get(pod.node)
        if room is None or not room.fits(pod, amounts[pod.role]):
            for done in allocated:
                rooms[done.node].take(done, amounts[done.role], -1)
            return False
        room.take(pod, amounts[pod.role])
        allocated.append(pod)
    return True


def _amounts(workload: Workload) -> dict[str, Amounts]:
    return {role.name: role.request.amounts for role in roles_of(workload.tree)}
