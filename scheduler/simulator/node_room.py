"""Check whether pods with reservations can start now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from berth.core.values.amounts import MILLI, Amounts
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import Node, NodeState, Pod, Workload
from scheduler.simulator.gangs import ALLOCATED_STATES


class FreeResources:
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

    def allocate(self, pod: Pod, amounts: Amounts, sign: int = 1) -> None:
        for device in pod.devices:
            self.devices[device] -= sign * pod.milli
        self.cpu -= sign * amounts.cpu
        self.memory_mib -= sign * amounts.memory_mib
        self.pods -= sign


def free_resources_by_node(nodes: Iterable[Node], workloads: Iterable[Workload]) -> dict[str, FreeResources]:
    free_resources = {node.name: FreeResources(node) for node in nodes}
    for workload in workloads:
        if workload.pods:
            amounts = _amounts_by_role(workload)
            for pod in workload.pods:
                if pod.state in ALLOCATED_STATES and pod.node in free_resources:
                    free_resources[pod.node].allocate(pod, amounts[pod.role])
    return free_resources


def allocate_all(
    workload: Workload, pods: Iterable[Pod], free_resources: Mapping[str, FreeResources]
) -> bool:
    """Allocate resources for all pods or none. Return whether all pods fit."""
    amounts = _amounts_by_role(workload)
    allocated: list[Pod] = []
    for pod in pods:
        room = free_resources.get(pod.node)
        if room is None or not room.fits(pod, amounts[pod.role]):
            for placed in allocated:
                free_resources[placed.node].allocate(placed, amounts[placed.role], -1)
            return False
        room.allocate(pod, amounts[pod.role])
        allocated.append(pod)
    return True


def _amounts_by_role(workload: Workload) -> dict[str, Amounts]:
    return {role.name: role.request.amounts for role in leaf_roles(workload.tree)}
