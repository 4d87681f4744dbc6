"""State of gangs in a simulation."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from berth.core.values.amounts import NO_RESOURCES, Amounts
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import Pod, PodState, Role, RoleGroup, Workload

RUNNING_STATES = (PodState.RUNNING, PodState.STARTING)
LIVE_STATES = (*RUNNING_STATES, PodState.RESERVED)
ALLOCATED_STATES = (*RUNNING_STATES, PodState.STOPPING, PodState.STUCK)
CHARGED_STATES = (*LIVE_STATES, PodState.STUCK)


def meets_minimum(workload: Workload, states: Iterable[PodState] = LIVE_STATES) -> bool:
    """Return whether the completed pods and the pods in `states` meet the gang's minimum."""
    counted = {*states, PodState.COMPLETED}
    return _meets_minimum(workload.tree, Counter(pod.role for pod in workload.pods if pod.state in counted))


def is_degraded(workload: Workload) -> bool:
    """Return whether the gang, or one of its groups or roles, is running but below its minimum."""
    counted = {*LIVE_STATES, PodState.COMPLETED}
    counts = Counter(pod.role for pod in workload.pods if pod.state in counted)
    running_roles = {pod.role for pod in workload.pods if pod.state in RUNNING_STATES}
    return _is_degraded(workload.tree, counts, running_roles)


def has_pod_in(workload: Workload, states: Collection[PodState]) -> bool:
    return any(pod.state in states for pod in workload.pods)


def is_finished(workload: Workload) -> bool:
    """Return whether all pods have completed and meet the gang's minimum."""
    return (
        bool(workload.pods)
        and all(pod.state is PodState.COMPLETED for pod in workload.pods)
        and meets_minimum(workload)
    )


def allocated_amounts(workload: Workload, pods: Iterable[Pod]) -> Amounts:
    requests = {role.name: role.request for role in leaf_roles(workload.tree)}
    total = NO_RESOURCES
    for pod in pods:
        request = requests[pod.role]
        total = total.plus(Amounts(pod.milli * len(pod.devices), request.cpu, request.memory_mib))
    return total


def _meets_minimum(node: RoleGroup | Role, counts: Mapping[str, int]) -> bool:
    if isinstance(node, Role):
        return counts.get(node.name, 0) >= node.min
    return sum(_meets_minimum(child, counts) for child in node.children) >= node.need


def _is_degraded(node: RoleGroup | Role, counts: Mapping[str, int], running_roles: Collection[str]) -> bool:
    roles = (node,) if isinstance(node, Role) else leaf_roles(node)
    if not any(role.name in running_roles for role in roles):
        return False
    if not _meets_minimum(node, counts):
        return True
    return isinstance(node, RoleGroup) and any(
        _is_degraded(child, counts, running_roles) for child in node.children
    )
