"""Queries of pools, nodes and their history."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.conf import settings
from django.db.models import Count, DateTimeField, F, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, Least

from pools.joining import secrets
from pools.models import Installation, Node, NodePool, ScalingEvent
from pools.models.node import HOSTING, PENDING, USABLE, NodeState
from pools.models.scaling import ScalingKind
from pools.runtimes.ray.cluster import NodeAt
from pools.services.pool_values import spec_of

PoolState = Literal["active", "paused", "drained", "failing"]
TO_STOP = timedelta(seconds=60)
SAID_BY_PROVIDERS = {
    ScalingKind.ERROR: "provider error",
    ScalingKind.ORPHAN: "an instance without a node was found",
}


def pools() -> QuerySet[NodePool]:
    """With the number of nodes in each phase, and of the GPUs of those that hold work."""
    return NodePool.objects.annotate(
        nodes_ready=_counted(USABLE),
        nodes_pending=_counted(PENDING),
        nodes_draining=_counted((NodeState.DRAINING,)),
        gpus_ready=Coalesce(Sum("nodes__gpus", filter=Q(nodes__state__in=HOSTING)), 0),
    ).order_by("name")


def nodes() -> QuerySet[Node]:
    """Those that have not ended."""
    living = Node.objects.exclude(state=NodeState.ENDED)
    return living.select_related("pool").order_by("pool__name", "ordinal")


def node_named(name: str, among: QuerySet[Node] | None = None) -> Node | None:
    """The living node of this name, or else the last one that had it; None if there never was one."""
    rows = (Node.objects if among is None else among).filter(name=name).select_related("pool", "environment")
    return rows.order_by(F("ended_at").desc(nulls_first=True), "-pk").first()


def pending_instances(pool_name: str, *, joined: bool) -> frozenset[str]:
    """Instances of nodes that are not ready yet; with `joined` only those whose machine has joined."""
    rows = Node.objects.filter(pool__name=pool_name, state__in=PENDING)
    if joined:
        rows = rows.filter(joined_at__isnull=False)
    return frozenset(rows.values_list("instance_id", flat=True))


@dataclass(frozen=True, slots=True)
class WorkOnNode:
    """What has pods on a node that have not ended."""

    handle: str
    pods: int
    preemptible: bool

    def __str__(self) -> str:
        pods = "1 pod" if self.pods == 1 else f"{self.pods} pods"
        return f"{self.handle} ({pods}{'' if self.preemptible else ', not preemptible'})"


def work_on(node_ids: Iterable[int]) -> dict[int, list[WorkOnNode]]:
    """By node; for people who run the platform, for it names everybody's work."""
    found: dict[int, list[WorkOnNode]] = {node_id: [] for node_id in node_ids}
    # Pods are rows of a higher floor; they are reached from the node, by name.
    live = ("starting", "running", "stopping")
    rows = Node.objects.filter(pk__in=list(found), pods__state__in=live)
    names = ("pk", "pods__workload__project__name", "pods__workload__name", "pods__workload__preemptible")
    counted = rows.values_list(*names).annotate(n=Count("pods")).order_by(*names)
    for pk, project, name, preemptible, pods in counted:
        found[pk].append(WorkOnNode(f"{project}/{name}", pods, preemptible))
    return found


def ray_nodes() -> list[NodeAt]:
    """Nodes of pools that run Ray, of which an address is known and which are not lost."""
    there = Node.objects.filter(pool__runtime=NodePool.Runtime.RAY, state__in=(*PENDING, *HOSTING))
    rows = there.exclude(address="").order_by("pk").values_list(
        "instance_id", "pool__name", "ordinal", "address", "devices"
    )  # fmt: skip
    return [
        NodeAt(instance_id, pool, ordinal, address, tuple(map(str, devices)), secrets.for_cluster(pool))
        for instance_id, pool, ordinal, address, devices in rows
    ]


def scaling_events(pool: NodePool) -> QuerySet[ScalingEvent]:
    """Newest first."""
    return ScalingEvent.objects.filter(pool=pool).select_related("node").order_by("-at", "-pk")


def overdue_drains(now: datetime) -> QuerySet[Node]:
    """Draining nodes whose pods had their pool's whole drain timeout to finish; or as much of it as the
    machine has, less what it takes them to stop."""
    patience = Least(
        F("drain_started_at") + F("pool__drain_timeout") * timedelta(seconds=1),
        F("interruption_at") - TO_STOP,
        output_field=DateTimeField(),
    )
    draining = Node.objects.filter(state=NodeState.DRAINING, emptied_at=None).annotate(due_at=patience)
    return draining.filter(due_at__lte=now).select_related("pool").order_by("pool__name", "-ordinal")


def installation() -> str:
    """The name by which our machines are known to providers: the setting, or one that was made once."""
    if given := str(settings.BERTH_INSTALLATION):
        return given
    return Installation.objects.get_or_create(pk=1, defaults={"name": uuid.uuid4().hex[:12]})[0].name


def is_operational(pool: NodePool) -> bool:
    """Whether its ready threshold was reached; from then on it takes work, until no node is left."""
    return pool.operational_since is not None


def state_of(pool: NodePool, now: datetime) -> PoolState:
    """The one word by which lists, pages and programs show how a pool is."""
    if pool.last_error:
        return "failing"
    if pool.paused:
        return "paused"
    return "drained" if pool.expires_at is not None and pool.expires_at <= now else "active"


def ready_threshold(pool: NodePool) -> int:
    """So many ready nodes it takes before the pool takes on its first work."""
    return max(spec_of(pool).ready_threshold, 1)


def reason_of(event: ScalingEvent, *, running_it: bool) -> str:
    """What a provider says, of accounts, roles and machines, is for those who run the platform."""
    if running_it or event.kind not in SAID_BY_PROVIDERS:
        return event.reason
    return SAID_BY_PROVIDERS[ScalingKind(event.kind)]


def _counted(states: tuple[NodeState, ...]) -> Count:
    return Count("nodes", filter=Q(nodes__state__in=states), distinct=True)
