"""Find inconsistent input to report and skip."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from berth.core.words import amount
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.model import Node, Pod, PodState, Queue, Reservation

# Valid pods, invalid pods whose resources are blocked, notes.
ValidatedPods = tuple[list[Pod], list[Pod], list[str]]


def validated_pods(
    name: str, pods: Sequence[Pod], roles: Collection[str], nodes: Collection[str]
) -> ValidatedPods:
    """Validate a workload's pods: duplicates count as stuck, pods of an unknown role only block resources."""
    sound, strange, notes = [], [], []
    replicas: set[tuple[str, int]] = set()
    for pod in pods:
        if pod.role not in roles:
            notes.append(f"{name}: there is no role {pod.role}")
            strange.append(pod)
        elif pod.state is not PodState.COMPLETED and pod.node not in nodes:
            notes.append(f"{name}: its pod {pod.role}-{pod.index} stands on no known node")
        elif pod.state in (PodState.COMPLETED, PodState.STOPPING, PodState.STUCK):
            sound.append(pod)
        elif (pod.role, pod.index) in replicas:
            notes.append(f"{name}: its pod {pod.role}-{pod.index} is listed twice")
            if pod.state is not PodState.RESERVED:
                sound.append(replace(pod, state=PodState.STUCK))
        else:
            replicas.add((pod.role, pod.index))
            sound.append(pod)
    return sound, strange, notes


def unmatched_reservations(promises: Sequence[Reservation], workload_names: Collection[str]) -> Iterator[str]:
    return (
        f"a place is promised to {p.workload}, which is not there"
        for p in promises
        if p.workload not in workload_names
    )


def orphans(queues: Sequence[Queue]) -> Iterator[str]:
    names = {queue.name for queue in queues}
    for queue in queues:
        if queue.parent is not None and queue.parent not in names:
            yield f"{queue.name}: there is no department {queue.parent}"


def overallocated(nodes: Nodes, among: Iterable[int] | None = None) -> Iterator[str]:
    """Yield notes on nodes and devices whose pods exceed their capacity."""
    for i in range(len(nodes.nodes)) if among is None else sorted(set(among)):
        node = nodes.nodes[i]
        if nodes.devices[i] and min(nodes.devices[i]) < 0:
            yield from _devices(node, nodes.devices[i])
        slack = node.cpu - node.cpu * nodes.cpu_load_limit // 1000
        for what, resource, left in (
            ("CPU", "cpu", nodes.cpu_unrequested[i] + slack),
            ("memory", "memory_mib", nodes.memory_unrequested[i]),
        ):
            if left < 0:
                yield f"{node.name}: its {what} is oversold by {amount(resource, -left)}"
        if nodes.pods[i] < 0:
            yield f"{node.name}: more pods stand there than its {node.max_pods}"


def _devices(node: Node, free: Sequence[int]) -> Iterator[str]:
    for device, left in enumerate(free):
        if left < 0:
            what = "is oversold" if device < node.gpus else "is not there and is held"
            yield f"{node.name}: device {device} {what}, by {amount('gpu', -left)}"
