"""Detect inconsistent input, which the engine reports and skips."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from berth.core.wording.words import format_amount
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.model import Node, Pod, PodState, Queue, Reservation

# Valid pods, invalid pods that only block resources, and notes.
ValidatedPods = tuple[list[Pod], list[Pod], list[str]]


def validate_pods(
    name: str, pods: Sequence[Pod], roles: Collection[str], nodes: Collection[str]
) -> ValidatedPods:
    """Validate a workload's pods.

    Duplicate pods are treated as stuck, and pods of unknown roles as invalid. Duplicate reservations, and
    live pods on unknown nodes, are dropped.
    """
    valid, invalid, notes = [], [], []
    replicas: set[tuple[str, int]] = set()
    for pod in pods:
        if pod.role not in roles:
            notes.append(f"{name}: there is no role {pod.role}")
            invalid.append(pod)
        elif pod.state is not PodState.COMPLETED and pod.node not in nodes:
            notes.append(f"{name}: its pod {pod.role}-{pod.index} is on an unknown node")
        elif pod.state in (PodState.COMPLETED, PodState.STOPPING, PodState.STUCK):
            valid.append(pod)
        elif (pod.role, pod.index) in replicas:
            notes.append(f"{name}: its pod {pod.role}-{pod.index} is listed twice")
            if pod.state is not PodState.RESERVED:
                valid.append(replace(pod, state=PodState.STUCK))
        else:
            replicas.add((pod.role, pod.index))
            valid.append(pod)
    return valid, invalid, notes


def unmatched_reservations(
    reservations: Sequence[Reservation], workload_names: Collection[str]
) -> Iterator[str]:
    return (
        f"capacity is reserved for unknown workload {p.workload}"
        for p in reservations
        if p.workload not in workload_names
    )


def queues_without_parent(queues: Sequence[Queue]) -> Iterator[str]:
    names = {queue.name for queue in queues}
    for queue in queues:
        if queue.parent is not None and queue.parent not in names:
            yield f"{queue.name}: there is no department {queue.parent}"


def overallocated_nodes(nodes: Nodes, among: Iterable[int] | None = None) -> Iterator[str]:
    """Yield a note for each node or device whose pods exceed its capacity."""
    for i in range(len(nodes.nodes)) if among is None else sorted(set(among)):
        node = nodes.nodes[i]
        if nodes.devices[i] and min(nodes.devices[i]) < 0:
            yield from _overallocated_devices(node, nodes.devices[i])
        slack = node.cpu - node.cpu * nodes.cpu_load_limit // 1000
        for name, resource, left in (
            ("CPU", "cpu", nodes.cpu_unrequested[i] + slack),
            ("memory", "memory_mib", nodes.memory_unrequested[i]),
        ):
            if left < 0:
                yield f"{node.name}: its {name} is oversold by {format_amount(resource, -left)}"
        if nodes.pods[i] < 0:
            yield f"{node.name}: more pods than its maximum of {node.max_pods}"


def _overallocated_devices(node: Node, free: Sequence[int]) -> Iterator[str]:
    for device, left in enumerate(free):
        if left < 0:
            problem = "is oversold by" if device < node.gpus else "does not exist, but its pods hold"
            yield f"{node.name}: device {device} {problem} {format_amount('gpu', -left)}"
