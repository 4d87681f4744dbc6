"""Here promises are kept as soon as the room is free, all places of a workload at once, or dropped."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Q

from berth.core.amounts import MILLI
from berth.db.lease import fenced
from pools.models import Node
from projects.models import Phase, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services.moves import move
from scheduler.commit.bind import ACTOR, Bound, Start, start
from scheduler.commit.bounds import asked_for, passed_bound
from scheduler.engine.plan import Place
from scheduler.holdings import recount
from scheduler.models import Allocation, DeviceClaim, Reservation
from scheduler.points import point
from scheduler.post import Post
from scheduler.specs import Specs

log = logging.getLogger(__name__)


def see_to_promises(now: datetime, post: Post) -> tuple[int, int]:
    """(kept, dropped). Does nothing, and locks nothing, while nothing is promised."""
    if not Reservation.objects.exists():
        return 0, 0
    kept = 0
    with fenced(post.held):
        dropped = _drop_dead(now)
        for workload in _promised():
            try:
                with transaction.atomic():
                    kept += _keep(workload, now, post.specs)
            except (OperationalError, InterfaceError):
                raise
            except (DatabaseError, AssertionError, KeyError) as error:
                log.warning("the promise to %s could not be kept: %s", workload.pk, error)
        point("promises.before_end")
    point("promises.done")
    return kept, dropped


def _promised() -> Iterable[Workload]:
    waiting = (Phase.PENDING, Phase.RESERVED, Phase.RUNNING)
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    return rows.filter(pk__in=Reservation.objects.values("workload_id"), phase__in=waiting).order_by("pk")


def _drop_dead(now: datetime) -> int:
    """Expired, homeless, or of somebody who ended."""
    dead = Q(expires_at__lte=now) | Q(node__state__in=("lost", "ended", "draining"))
    dead |= Q(workload__phase__in=ENDED_PHASES)
    ids = set(Reservation.objects.filter(dead).values_list("workload_id", flat=True))
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    for workload in rows.filter(pk__in=ids).order_by("pk"):
        _drop(workload, "The room promised to it did not become free in time.", now)
    return len(ids)


def _drop(workload: Workload, why: str, now: datetime) -> None:
    Reservation.objects.filter(workload=workload).delete()
    if workload.phase == Phase.RESERVED:
        move(
            workload,
            expected=[Phase.RESERVED],
            to=Phase.PENDING,
            reason="PromiseDropped",
            message=why,
            actor=ACTOR,
            now=now,
        )


def _keep(workload: Workload, now: datetime, specs: Specs) -> bool:
    rows = list(Reservation.objects.filter(workload=workload).order_by("role", "index"))
    ids = {row.node_id for row in rows}
    nodes = {
        node.pk: node
        for node in Node.objects.select_for_update(of=("self",))
        .select_related("pool")
        .filter(pk__in=ids)
        .order_by("pk")
    }
    meaning = specs.of(workload)
    if any(node.state != "ready" for node in nodes.values()) or not _is_free(rows, nodes, specs, workload):
        return False
    bound_by = passed_bound(workload, next(iter(nodes.values())).pool, asked_for(rows, meaning))
    if bound_by:
        _drop(workload, f"It may not start any more: {bound_by}", now)
        return False
    places = [
        Place(
            workload.handle, row.role, row.index, nodes[row.node_id].name, tuple(row.devices), row.gpu_milli
        )
        for row in rows
    ]
    by_name = {node.name: node for node in nodes.values()}
    bound = Bound()
    start(Start(workload, meaning, places, by_name, now, None), bound, "start")
    bound.insert()
    recount([workload.pk])
    return True


def _is_free(
    rows: Iterable[Reservation], nodes: Mapping[int, Node], specs: Specs, workload: Workload
) -> bool:
    """Nothing else holds any of it any more."""
    roles = specs.of(workload).roles
    devices: dict[tuple[int, int], int] = defaultdict(int)
    cpu: dict[int, int] = defaultdict(int)
    memory: dict[int, int] = defaultdict(int)
    pods: dict[int, int] = defaultdict(int)
    for row in rows:
        request = roles[row.role].request
        cpu[row.node_id] += request.cpu
        memory[row.node_id] += request.memory_mib
        pods[row.node_id] += 1
        for device in row.devices:
            devices[row.node_id, device] += row.gpu_milli
    for claim in DeviceClaim.objects.filter(node_id__in=nodes):
        devices[claim.node_id, claim.device] += claim.milli
    if any(milli > MILLI for milli in devices.values()):
        return False
    for held in Allocation.objects.filter(node_id__in=nodes, released_at__isnull=True):
        cpu[held.node_id] += held.cpu_milli
        memory[held.node_id] += held.memory_mib
        pods[held.node_id] += 1
    return all(
        cpu[pk] * MILLI <= node.cpu_milli * node.pool.cpu_load_limit
        and memory[pk] <= node.memory_mib
        and pods[pk] <= node.max_pods
        for pk, node in nodes.items()
    )
