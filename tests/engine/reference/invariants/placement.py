"""Invariants for placement: capacity and constraints.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections import defaultdict
from collections.abc import Iterator

from berth.core.values.amounts import MILLI, Amounts
from scheduler.engine.model import (
    NodeState,
    Pod,
    PodState,
    Role,
    RoleGroup,
    Snapshot,
    Taint,
    Toleration,
    Workload,
)
from scheduler.engine.plan import Plan
from tests.engine.reference.replay import (
    Cluster,
    find_role,
    replay_plan,
    requested,
    roles,
)

Broken = Iterator[str]


def no_node_exceeds_its_capacity(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check capacity while pods are stopping and after they have stopped."""
    cluster = replay_plan(snapshot, plan)
    staying = [
        s.pod.state for s in cluster.pods if s.pod.state not in (PodState.STOPPING, PodState.COMPLETED)
    ]
    now = [s for s in staying if s is not PodState.RESERVED] + [PodState.STOPPING]
    yield from _overfull_nodes(cluster, set(staying), "once all pods have stopped")
    yield from _overfull_nodes(cluster, set(now), "at once")


def _overfull_nodes(cluster: Cluster, states: set[PodState], when: str) -> Broken:
    devices: dict[tuple[str, int], list[int]] = defaultdict(list)
    held: dict[str, Amounts] = defaultdict(Amounts)
    pods: dict[str, int] = defaultdict(int)
    for stood in cluster.pods:
        pod = stood.pod
        if pod.state not in states:
            continue
        for device in pod.devices:
            devices[pod.node, device].append(pod.milli)
        held[pod.node] = held[pod.node].plus(requested(cluster.workloads[stood.workload], pod))
        pods[pod.node] += 1
    for (node, device), parts in devices.items():
        if device >= cluster.nodes[node].gpus:
            yield f"{when}: {node} has no device {device}"
        if sum(parts) > MILLI or (MILLI in parts and len(parts) > 1):
            yield f"{when}: device {device} of {node} holds {parts}"
    for node, amounts in held.items():
        if any(amount > whole for amount, whole in zip(amounts, cluster.nodes[node].capacity, strict=True)):
            yield f"{when}: {node} holds {amounts} of {cluster.nodes[node].capacity}"
        if pods[node] > cluster.nodes[node].max_pods:
            yield f"{when}: {node} holds {pods[node]} pods"


def pods_run_only_on_matching_nodes(snapshot: Snapshot, plan: Plan) -> Broken:
    cluster = replay_plan(snapshot, plan)
    for stood in cluster.pods:
        if stood.new:
            workload = cluster.workloads[stood.workload]
            for why in _mismatches(cluster, workload, stood.pod):
                yield f"{stood.workload} {stood.pod.role}-{stood.pod.index} on {stood.pod.node}: {why}"
    for name in {stood.workload for stood in cluster.pods if stood.new}:
        if len({cluster.nodes[pod.node].pool for pod in cluster.of(name)}) > 1:
            yield f"{name} runs in two pools"


def _mismatches(cluster: Cluster, workload: Workload, pod: Pod) -> Broken:
    node, role = cluster.nodes[pod.node], find_role(workload, pod.role)
    promised = (NodeState.READY, NodeState.BOOTING)
    if node.state not in (promised if pod.state is PodState.RESERVED else (NodeState.READY,)):
        yield f"the node is {node.state}"
    if node.pool not in workload.pools:
        yield "the pool is not one of the workload's pools"
    if any(node.labels.get(key) != value for key, value in role.node_selector.items()):
        yield "the node selector does not match"
    if role.gpu_models and node.gpu_model not in role.gpu_models:
        yield "the GPU model is not one of the role's models"
    if any(not _is_tolerated(taint, role.tolerations) for taint in node.taints):
        yield "a taint is not tolerated"
    if node.missing_features.keys() & {"isolation", *role.requires}:
        yield f"the node lacks {', '.join(node.missing_features)}"
    if node.only_project not in ("", workload.project):
        yield f"the node serves only {node.only_project}"
    request = role.request
    if len(pod.devices) != request.devices or len(set(pod.devices)) != len(pod.devices):
        yield f"holds devices {pod.devices}, requested {request.devices}"
    if request.gpu and pod.milli != request.gpu and request.devices:
        yield f"holds {pod.milli} of each device, requested {request.gpu}"
    if request.gpu_memory_mib and pod.milli * node.gpu_memory_mib < request.gpu_memory_mib * MILLI:
        yield "has too little GPU memory"
    here = sum(1 for p in cluster.of(workload.name) if p.role == role.name and p.node == node.name)
    if role.spread_per_node is not None and here > role.spread_per_node:
        yield f"{here} replicas on one node"


def _is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect == "PreferNoSchedule" or any(
        t.effect in ("", taint.effect)
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.key == taint.key and t.value == taint.value))
        for t in tolerations
    )


def required_topology_holds(snapshot: Snapshot, plan: Plan) -> Broken:
    cluster = replay_plan(snapshot, plan)
    for name in {stood.workload for stood in cluster.pods if stood.new}:
        yield from _outside_domain(cluster, name, cluster.workloads[name].tree)


def _outside_domain(cluster: Cluster, name: str, node: RoleGroup | Role) -> Broken:
    if node.topology is not None and node.topology.required is not None:
        mine = {node.name} if isinstance(node, Role) else {role.name for role in roles(node)}
        on = {pod.node for pod in cluster.of(name) if pod.role in mine}
        homes = {_home(cluster, n, node.topology.required) for n in on}
        if len(homes) > 1 or None in homes:
            yield f"{name}: {node.name} stands across {node.topology.required} {sorted(map(str, homes))}"
    if isinstance(node, RoleGroup):
        for child in node.children:
            yield from _outside_domain(cluster, name, child)


def _home(cluster: Cluster, name: str, level: str) -> tuple[str, ...] | None:
    node = cluster.nodes[name]
    levels = tuple(cluster.levels[node.pool])
    around = levels[: levels.index(level)] if level in levels else ()
    if level not in node.labels:
        return None
    return (*(node.labels.get(key, "") for key in around), node.labels[level])


INVARIANTS = (
    no_node_exceeds_its_capacity,
    pods_run_only_on_matching_nodes,
    required_topology_holds,
)
