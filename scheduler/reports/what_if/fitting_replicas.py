"""Explain why a smaller number of replicas fits: some GPUs are free, and evictions would free others."""

from collections.abc import Callable, Collection
from dataclasses import replace

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_gpus, format_number
from scheduler.engine.future_capacity import minimum_request
from scheduler.engine.model import NodeState, PodState, Snapshot, Workload
from scheduler.engine.smallest_change.change import Change, ChangeKind, apply_change, require_integer
from scheduler.engine.smallest_change.search import SmallestChange


def explain_replica_limit(
    result: SmallestChange, snapshot: Snapshot, name: str, is_visible: Callable[[str], bool]
) -> str:
    """Return a clause that explains why the change allows no more replicas, such as "1.25 GPUs are free, and
    the eviction would free 4". Return "" for any other change, or if the clause would reveal a hidden
    workload's size.
    """
    change, effects = result.change, result.effects
    if change is None or change.kind is not ChangeKind.REQUEST_LOWERED or change.resource != "replicas":
        return ""
    by_name = {workload.name: workload for workload in snapshot.workloads}
    if name not in by_name or len(by_name[name].pools) != 1 or effects.scaled_down or effects.moved:
        return ""
    if not all(map(is_visible, effects.evicted)):
        return ""
    [pool] = by_name[name].pools
    nodes = {node.name for node in snapshot.nodes if node.pool == pool and node.state is NodeState.READY}
    free = _free_gpus(snapshot, nodes)
    freed = sum(_total_gpus_on_nodes(nodes, by_name[each]) for each in effects.evicted if each in by_name)
    replicas = require_integer(change.after)
    enough, too_many = (_requested_gpus(snapshot, name, change, replicas + more) for more in (0, 1))
    if not enough <= free + freed < too_many:
        return ""
    is_free = "is free" if free == MILLI else "are free"
    subject = "the eviction" if len(effects.evicted) == 1 else "the evictions"
    clause = f", and {subject} would free {format_number(freed / MILLI)}" if freed else ""
    return f"{format_gpus(free)} {is_free}{clause}"


def _requested_gpus(snapshot: Snapshot, name: str, change: Change, replicas: int) -> int:
    """Return the GPUs, in thousandths, that the workload would need with a different number of replicas."""
    edited = apply_change(snapshot, name, replace(change, after=replicas))
    return minimum_request(next(each for each in edited.workloads if each.name == name).tree)[0]


def _free_gpus(snapshot: Snapshot, nodes: Collection[str]) -> int:
    """Return the nodes' GPUs, in thousandths, that are neither allocated nor reserved."""
    total = sum(node.usable_gpus for node in snapshot.nodes if node.name in nodes) * MILLI
    reserved = sum(row.milli * len(row.devices) for row in snapshot.reservations if row.node in nodes)
    return total - reserved - sum(_total_gpus_on_nodes(nodes, workload) for workload in snapshot.workloads)


def _total_gpus_on_nodes(nodes: Collection[str], workload: Workload) -> int:
    return sum(
        pod.milli * len(pod.devices)
        for pod in workload.pods
        if pod.node in nodes and pod.state is not PodState.COMPLETED
    )
