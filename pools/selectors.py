"""Queries for pools, nodes and their history."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Least

from berth.db.loops.reconnect import reconnect_after_failure
from pools.joining import secrets
from pools.kubernetes.manifests import namespace_name
from pools.models import Installation, Node, NodePool, ScalingEvent
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.runtimes.enclosure.levels import IsolationLevel
from pools.runtimes.ray.cluster import RayNode
from pools.services.pool_values import pool_node_spec

PoolState = Literal["active", "paused", "drained", "failing"]
STOP_TIME = timedelta(seconds=60)
PROVIDER_EVENTS = {
    ScalingKind.ERROR: "provider error",
    ScalingKind.ORPHAN: "an instance without a node was found",
}


def pools() -> QuerySet[NodePool]:
    """Return all pools with their node counts by phase, the number of GPUs on their running nodes, and their
    weakest isolation level.
    """
    return NodePool.objects.annotate(
        nodes_ready=_node_count(USABLE),
        nodes_pending=_node_count(PENDING),
        nodes_draining=_node_count((NodeState.DRAINING,)),
        gpus_ready=Coalesce(Sum("nodes__gpus", filter=Q(nodes__state__in=HOSTING)), 0),
        isolation=_weakest_isolation(),
    ).order_by("name")


def nodes() -> QuerySet[Node]:
    """Return the nodes that have not ended."""
    living = Node.objects.exclude(state=NodeState.ENDED)
    return living.select_related("pool").order_by("pool__name", "ordinal")


def find_node(name: str, among: QuerySet[Node] | None = None) -> Node | None:
    """Return the current node with the given name or, if there is none, the last node that had the name.

    Return None if there is no such node.
    """
    rows = (Node.objects if among is None else among).filter(name=name).select_related("pool", "environment")
    return rows.order_by(F("ended_at").desc(nulls_first=True), "-pk").first()


def pending_instances(pool_name: str, *, joined: bool) -> frozenset[str]:
    """Return the instance IDs of nodes that are not ready yet.

    If `joined` is set, return only those whose machines have joined.
    """
    rows = Node.objects.filter(pool__name=pool_name, state__in=PENDING)
    if joined:
        rows = rows.filter(joined_at__isnull=False)
    return frozenset(rows.values_list("instance_id", flat=True))


@dataclass(frozen=True, slots=True)
class NodeWorkload:
    """Workload that has active pods on a node."""

    handle: str
    pods: int
    preemptible: bool

    def __str__(self) -> str:
        pods = "1 pod" if self.pods == 1 else f"{self.pods} pods"
        return f"{self.handle} ({pods}{'' if self.preemptible else ', non-preemptible'})"


def workloads_on_nodes(node_ids: Iterable[int]) -> dict[int, list[NodeWorkload]]:
    """Return all projects' workloads on each node. Only platform admins may see the result."""
    workloads: dict[int, list[NodeWorkload]] = {node_id: [] for node_id in node_ids}
    # Pods belong to a higher layer, so this function reads them through the node's relations.
    active_states = ("starting", "running", "stopping")
    rows = Node.objects.filter(pk__in=list(workloads), pods__state__in=active_states)
    names = ("pk", "pods__workload__project__name", "pods__workload__name", "pods__workload__preemptible")
    rows_with_counts = rows.values_list(*names).annotate(n=Count("pods")).order_by(*names)
    for pk, project, name, preemptible, pods in rows_with_counts:
        workloads[pk].append(NodeWorkload(f"{project}/{name}", pods, preemptible))
    return workloads


@reconnect_after_failure
def ray_nodes() -> list[RayNode]:
    """Return the nodes of Ray pools, except lost nodes and nodes without an address."""
    nodes = Node.objects.filter(pool__runtime=NodePool.Runtime.RAY, state__in=(*PENDING, *HOSTING))
    rows = nodes.exclude(address="").order_by("pk").values_list(
        "instance_id", "pool__name", "ordinal", "address", "devices"
    )  # fmt: skip
    return [
        RayNode(instance_id, pool, ordinal, address, tuple(map(str, devices)), secrets.cluster_secret(pool))
        for instance_id, pool, ordinal, address, devices in rows
    ]


def scaling_events(pool: NodePool) -> QuerySet[ScalingEvent]:
    """Return the pool's scaling events, newest first."""
    return ScalingEvent.objects.filter(pool=pool).select_related("node").order_by("-at", "-pk")


def overdue_drains(now: datetime) -> QuerySet[Node]:
    """Return draining nodes that still have pods after the drain timeout.

    Before a spot interruption, the timeout ends early enough for the pods to stop.
    """
    deadline = Least(
        F("drain_started_at") + F("pool__drain_timeout") * timedelta(seconds=1),
        F("interruption_at") - STOP_TIME,
        output_field=DateTimeField(),
    )
    draining = Node.objects.filter(state=NodeState.DRAINING, emptied_at=None).annotate(due_at=deadline)
    return draining.filter(due_at__lte=now).select_related("pool").order_by("pool__name", "-ordinal")


def installation_name() -> str:
    """Return the name of this installation, generated and stored if none is configured.

    Providers use it to recognize the installation's machines.
    """
    if name := str(settings.BERTH_INSTALLATION):
        return name
    return Installation.objects.get_or_create(pk=1, defaults={"name": uuid.uuid4().hex[:12]})[0].name


def project_namespace(project: str) -> str:
    """Return the Kubernetes namespace for a project's pods."""
    return namespace_name(installation_name(), project)


def is_operational(pool: NodePool) -> bool:
    """Return whether the pool has reached its ready threshold.

    An operational pool accepts pods until it has no nodes.
    """
    return pool.operational_since is not None


def pool_state(pool: NodePool, now: datetime) -> PoolState:
    """Return the pool's state as shown to users."""
    if pool.last_error:
        return "failing"
    if pool.paused:
        return "paused"
    return "drained" if pool.expires_at is not None and pool.expires_at <= now else "active"


def ready_threshold(pool: NodePool) -> int:
    """Return the number of nodes that must be ready before the pool accepts pods."""
    return max(pool_node_spec(pool).ready_threshold, 1)


def visible_reason(event: ScalingEvent, *, is_admin: bool) -> str:
    """Return a scaling event's reason. Only platform admins may see provider messages."""
    if is_admin or event.kind not in PROVIDER_EVENTS:
        return event.reason
    return PROVIDER_EVENTS[ScalingKind(event.kind)]


def _weakest_isolation() -> Case:
    """Return an expression for the weakest isolation level of a pool's nodes, or None if it is unknown."""
    hosting = Node.objects.filter(pool=OuterRef("pk"), state__in=HOSTING)
    weakest_first = [level.value for level in reversed(IsolationLevel)]
    cases = (When(Exists(hosting.filter(isolation__level=name)), then=Value(name)) for name in weakest_first)
    return Case(*cases, output_field=CharField())


def _node_count(states: tuple[NodeState, ...]) -> Count:
    return Count("nodes", filter=Q(nodes__state__in=states), distinct=True)
