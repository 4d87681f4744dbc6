"""Describe reservations for the *Status* column of the workload list."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pools.models.node import PENDING
from projects.models import Phase, Workload
from projects.web.workloads.activity import join_node_names, pods_on_nodes


@dataclass(frozen=True, slots=True)
class ReservationStatus:
    """Reserved pods and their nodes as text, and the number of booting nodes.

    `ready_at` is the time when the last of the booting nodes will be ready, or None if unknown.
    """

    pods: str
    nodes: str
    booting: int
    ready_at: datetime | None


def load_reservations(rows: Iterable[Workload]) -> Mapping[UUID, ReservationStatus]:
    """Return the reservation status of each reserved workload."""
    reserved = [row.pk for row in rows if row.phase == Phase.RESERVED]
    if not reserved:
        return {}
    reservations: Any = Workload._meta.get_field("reservations").related_model
    nodes = defaultdict[UUID, list[Any]](list)
    for row in reservations.objects.filter(workload__in=reserved).select_related("node"):
        nodes[row.workload_id].append(row.node)
    return {pk: _describe_reservation(each) for pk, each in nodes.items()}


def _describe_reservation(nodes: list[Any]) -> ReservationStatus:
    booting = {node.pk: node.ready_at for node in nodes if node.state in PENDING}
    times = booting.values()
    ready_at = max(times) if times and all(times) else None
    names = sorted({node.name for node in nodes})
    pods = pods_on_nodes(len(nodes), names)
    return ReservationStatus(pods, join_node_names(names), len(booting), ready_at)
