"""Estimate when a pool's nodes will have booted, based on earlier boots."""

from datetime import datetime, timedelta
from statistics import median
from uuid import UUID

from django.db.models import F

from berth.core.wording.words import format_count
from pools.models import Node, NodePool
from pools.models.node import PENDING, NodeState
from scheduler.reports.pool_findings import format_node_names, has_or_have, is_or_are

RECENT_BOOTS = 10
LOCAL_BOOT = timedelta(seconds=2)  # typical boot time of local nodes; they only need a directory


def expected_boot(pool: str, now: datetime) -> tuple[datetime | None, str]:
    """Return when a node requested now would be ready, and the basis of the estimate.

    If no estimate is possible, return None and the reason.
    """
    times = _boot_times(pool)
    if times:
        nodes = "the last node" if len(times) == 1 else f"the last {format_count(len(times), 'node')}"
        return now + timedelta(seconds=median(times)), f"if nodes boot as fast as {nodes} of pool {pool}"
    if NodePool.objects.filter(name=pool, provider=NodePool.Provider.LOCAL).exists():
        return now + LOCAL_BOOT, "if nodes boot within seconds, as usual on this machine"
    return None, f"no node of pool {pool} has booted yet, so the boot time is unknown"


def expected_boot_end(pool: str, now: datetime) -> tuple[datetime | None, str]:
    """Return when all of the pool's pending nodes should be ready, and the basis of the estimate.

    If no estimate is possible or a node is late, return None and the reason.
    """
    expected, because = expected_boot(pool, now)
    pending = Node.objects.filter(pool__name=pool, state__in=PENDING)
    nodes = list(pending.values_list("created_at", "ready_at"))
    if not nodes or expected is None:
        return expected, because
    ends = [ready or created + (expected - now) for created, ready in nodes]
    return (max(ends), because) if min(ends) >= now else (None, "the nodes are late")


def reserved_nodes_ready_time(workload: UUID, now: datetime) -> tuple[datetime | None, str]:
    """Return when the booting nodes reserved for the workload should be ready, and a qualifier such as "if
    node a has booted by then". If the time is unknown or has passed, return None and the reason. If no
    reserved node is booting, return None and "".
    """
    reserved = Node.objects.filter(reservations__workload=workload, state__in=PENDING)
    nodes = list(reserved.distinct().order_by("name"))
    if not nodes:
        return None, ""
    names = f"{'node' if len(nodes) == 1 else 'nodes'} {format_node_names(nodes)}"
    ready = [node.ready_at for node in nodes if node.ready_at is not None]
    if len(ready) < len(nodes):
        return None, f"the boot time of {names} is unknown"
    if max(ready) < now:
        return None, f"{names} {is_or_are(nodes)} late"
    return max(ready), f"if {names} {has_or_have(nodes)} booted by then"


def _boot_times(pool: str) -> list[float]:
    """Return the boot times in seconds of the pool's latest nodes."""
    booted = (
        Node.objects.filter(pool__name=pool, ready_at__gte=F("created_at"))
        .exclude(state__in=(*PENDING, NodeState.LOST))
        .order_by("-pk")[:RECENT_BOOTS]
    )
    return [(node.ready_at - node.created_at).total_seconds() for node in booted if node.ready_at]
