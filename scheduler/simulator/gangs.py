"""State of gangs in a simulation."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from berth.core.amounts import NOTHING, Amounts
from scheduler.engine.board.gang import roles_of
from scheduler.engine.model import Group, Pod, PodState, Role, Workload

STANDING = (PodState.RUNNING, PodState.STARTING)
ALIVE = (*STANDING, PodState.RESERVED)
HOLDING = (*STANDING, PodState.STOPPING, PodState.STUCK)
CHARGED = (*ALIVE, PodState.STUCK)


def is_whole(workload: Workload, states: Iterable[PodState] = ALIVE) -> bool:
    """Return whether pods in these states and completed pods form a complete gang."""
    counted = {*states, PodState.COMPLETED}
    return _stands(workload.tree, Counter(pod.role for pod in workload.pods if pod.state in counted))


def is_degraded(workload: Workload) -> bool:
    """Return whether the gang or one of its groups has pods, but fewer than its minimum."""
    counted = {*ALIVE, PodState.COMPLETED}
    counts = Counter(pod.role for pod in workload.pods if pod.state in counted)
    standing = {pod.role for pod in workload.pods if pod.state in STANDING}
    return _is_degraded(workload.tree, counts, standing)


def has_pod_in(workload: Workload, states: Collection[PodState]) -> bool:
    return any(pod.state in states for pod in workload.pods)


def is_finished(workload: Workload) -> bool:
    """Return whether all replicas have completed."""
    return (
        bool(workload.pods)
        and all(pod.state is PodState.COMPLETED for pod in workload.pods)
        and is_whole(workload)
    )


def held_by(workload: Workload, pods: Iterable[Pod]) -> Amounts:
    requests = {role.name: role.request for role in roles_of(workload.tree)}
    total = NOTHING
    for pod in pods:
        request = requests[pod.role]
        total = total.plus(Amounts(pod.milli * len(pod.devices), request.cpu, request.memory_mib))
    return total


def _stands(node: Group | Role, counts: Mapping[str, int]) -> bool:
    if isinstance(node, Role):
        return counts.get(node.name, 0) >= node.min
    return sum(_stands(child, counts) for child in node.children) >= node.need


def _is_degraded(node: Group | Role, counts: Mapping[str, int], standing: Collection[str]) -> bool:
    roles = (node,) if isinstance(node, Role) else roles_of(node)
    if not any(role.name in standing for role in roles):
        return False
    if not _stands(node, counts):
        return True
    return isinstance(node, Group) and any(_is_degraded(child, counts, standing) for child in node.children)
