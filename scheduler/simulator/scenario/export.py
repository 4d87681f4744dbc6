"""Write a snapshot as a scenario."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from berth.core.values.amounts import MILLI, Bounds
from scheduler.engine.board.gang import leaf_roles
from scheduler.engine.model import (
    IMAGES,
    VOLUME,
    Pod,
    PoolQuota,
    Queue,
    Reservation,
    Role,
    RoleGroup,
    Snapshot,
    Toleration,
    TopologyConstraint,
    Usage,
    Workload,
)
from scheduler.simulator.scenario.export_nodes import node_document, pool_document
from scheduler.simulator.scenario.schema import FORMAT

Document = dict[str, Any]
ANY_IMAGE = "localhost/image:latest"  # the engine only records whether a workload has an image


def snapshot_to_scenario(snapshot: Snapshot, cycle_seconds: int = 1) -> Document:
    """Return a scenario document that reproduces the snapshot when it is loaded."""
    departments = [queue for queue in snapshot.queues if queue.parent is None]
    projects = [queue for queue in snapshot.queues if queue.parent is not None]
    workload_names = {workload.name for workload in snapshot.workloads}
    return {
        "format": FORMAT,
        "now": format_time(snapshot.now),
        "cycle_seconds": cycle_seconds,
        "pools": [pool_document(pool) for pool in snapshot.pools],
        "nodes": [node_document(node) for node in snapshot.nodes],
        **drop_empty_values(quota_groups=_quota_groups(snapshot)),
        "departments": [_queue_document(queue) for queue in departments],
        "projects": [{**_queue_document(queue), "department": queue.parent} for queue in projects],
        "workloads": [_workload_document(workload, workload_names) for workload in snapshot.workloads],
        "reservations": [_reservation_document(reservation) for reservation in snapshot.reservations],
    }


def _quota_groups(snapshot: Snapshot) -> list[Document]:
    groups: dict[str, set[str]] = {}
    for queue in snapshot.queues:
        for pool, pool_quota in queue.pool_quotas.items():
            if pool_quota.group:
                groups.setdefault(pool_quota.group, set()).add(pool)
    return [{"name": name, "pools": sorted(pools)} for name, pools in sorted(groups.items())]


def format_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_thousandths(milli: int) -> int | float:
    """Convert thousandths to units, for example 2 or 0.5."""
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def drop_empty_values(**values: Any) -> Document:
    """Return the values that are not empty."""
    return {key: value for key, value in values.items() if value not in (None, (), [], {}, "")}


def _format_optional_time(seconds: int | None) -> str | None:
    return None if seconds is None else format_time(seconds)


def _queue_document(queue: Queue) -> Document:
    quotas = {
        pool_quota.group or pool: _quota_document(pool_quota)
        for pool, pool_quota in queue.pool_quotas.items()
    }
    usage = {pool: _usage_document(pool_quota.usage) for pool, pool_quota in queue.pool_quotas.items()}
    return {"name": queue.name, "quotas": quotas} | drop_empty_values(
        created=format_time(queue.created) if queue.created else None,
        usage={pool: used for pool, used in usage.items() if used},
        reclaim_min_runtime=queue.reclaim_min_runtime,
        preempt_min_runtime=queue.preempt_min_runtime,
        expected_runtime=queue.expected_runtime,
    )


def _quota_document(pool_quota: PoolQuota) -> Document:
    weights = dict(zip(("gpu", "cpu", "memory_mib"), pool_quota.weights, strict=True))
    document = {
        **_bounds_document(pool_quota.quota),
        "weight": weights,
        "over_quota": pool_quota.over_quota,
    }
    if pool_quota.limit != Bounds():
        document["limit"] = _bounds_document(pool_quota.limit)
    return document | drop_empty_values(rank=pool_quota.rank or None)


def _bounds_document(bounds: Bounds) -> Document:
    gpu, cpu, memory = bounds
    return {
        "gpu": None if gpu is None else from_thousandths(gpu),
        "cpu": None if cpu is None else from_thousandths(cpu),
        "memory_mib": memory,
    }


def _usage_document(usage: Usage) -> Document:
    return {} if usage == Usage() else {"used": list(usage.used), "parent": list(usage.parent)}


def _workload_document(workload: Workload, workload_names: Collection[str]) -> Document:
    document = {
        "name": workload.name,
        "project": workload.project,
        "pools": list(workload.pools),
        "priority": workload.priority,
        "preemptible": workload.preemptible,
        "submitted": format_time(workload.submitted),
        "started": _format_optional_time(workload.started),
        **_group_fields(workload.tree),
    }
    if any(IMAGES in role.requires for role in leaf_roles(workload.tree)):
        document["image"] = ANY_IMAGE
    required = {feature for role in leaf_roles(workload.tree) for feature in role.requires}
    if volumes := sorted(each.removeprefix(VOLUME) for each in required if each.startswith(VOLUME)):
        document["volumes"] = [{"name": name, "path": f"/volumes/{name}"} for name in volumes]
    # No simulated workload fails, so a workload that waits for a failure never starts.
    if workload.suspended or any(dependency.state == "failed" for dependency in workload.after):
        document["suspended"] = True
    if workload.endless:
        document["kind"] = "service" if workload.scale_up_adds_nodes else "interactive"
    return document | drop_empty_values(
        max_runtime=workload.max_runtime,
        runtime_seconds=workload.runtime_seconds,
        last_checkpoint=_format_optional_time(workload.last_checkpoint),
        preemptions=workload.preemptions or None,
        restarts=workload.restarts or None,
        avoided_nodes=sorted({name for role in leaf_roles(workload.tree) for name in role.avoided_nodes}),
        backoff_until=_format_optional_time(workload.backoff_until),
        preemption_delay=workload.preemption_delay,
        stale_gang_grace=None if workload.stale_gang_grace is None else max(-1, workload.stale_gang_grace),
        stale_since=_format_optional_time(workload.stale_since),
        misconfigured=workload.misconfigured,
        awaits_code=workload.awaits_code,
        after=[
            drop_empty_values(
                workload=dependency.workload, state="any" if dependency.state == "any" else None
            )
            for dependency in workload.after
            if dependency.workload in workload_names and dependency.state != "failed"
        ],
        pods=[_pod_document(pod) for pod in workload.pods] if workload.tree.children else None,
    )


def _group_fields(group: RoleGroup) -> Document:
    if not group.children:
        return {"roles": [{"name": "unknown"}]}  # a workload without roles never starts
    document = drop_empty_values(topology=_topology_document(group.topology))
    if group.need != len(group.children):
        document["need"] = group.need
    if all(isinstance(child, Role) for child in group.children):
        return document | {
            "roles": [_role_document(child) for child in group.children if isinstance(child, Role)]
        }
    return document | {"groups": [_group_document(child) for child in group.children]}


def _group_document(child: RoleGroup | Role) -> Document:
    """Convert a group to a document.

    Each role gets its own group, because roles and groups cannot be mixed on one level.
    """
    if isinstance(child, Role):
        return {"name": child.name, "roles": [_role_document(child)]}
    return {"name": child.name, **_group_fields(child)}


def _role_document(role: Role) -> Document:
    request = role.request
    document: Document = {"name": role.name, "min": role.min, "max": role.max}
    if request.devices and request.gpu == MILLI:
        document["gpu"] = request.devices
    elif request.devices:
        by_memory = {"gpu_memory_mib": request.gpu_memory_mib}
        document |= {"gpu": request.gpu / MILLI} if request.gpu else by_memory
        document["gpu_devices"] = request.devices
    limit: Document = {}
    if request.limit_cpu > request.cpu:
        limit["cpu"] = from_thousandths(request.limit_cpu)
    if request.limit_memory_mib > request.memory_mib:
        limit["memory_mib"] = request.limit_memory_mib
    scale_with = role.scale_with
    return document | drop_empty_values(
        cpu=from_thousandths(request.cpu) or None,
        memory_mib=request.memory_mib or None,
        limit=limit,
        node_selector=dict(role.node_selector),
        tolerations=[_toleration_document(toleration) for toleration in role.tolerations],
        gpu_models=list(role.gpu_models),
        spread_per_node=role.spread_per_node,
        topology=_topology_document(role.topology),
        scale_with=None if scale_with is None else {"role": scale_with.role, "ratio": scale_with.ratio},
    )


def _topology_document(constraint: TopologyConstraint | None) -> Mapping[str, str]:
    return (
        {}
        if constraint is None
        else drop_empty_values(required=constraint.required, preferred=constraint.preferred)
    )


def _toleration_document(toleration: Toleration) -> Document:
    return drop_empty_values(
        key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
    )


def _pod_document(pod: Pod) -> Document:
    return _position_document(pod) | {"state": pod.state.value, "started": format_time(pod.started)}


def _reservation_document(reservation: Reservation) -> Document:
    return {
        "workload": reservation.workload,
        **_position_document(reservation),
        **drop_empty_values(expires=_format_optional_time(reservation.expires)),
    }


def _position_document(at: Pod | Reservation) -> Document:
    devices: Sequence[int] = at.devices
    return {"role": at.role, "index": at.index, "node": at.node or None, "devices": list(devices)}
