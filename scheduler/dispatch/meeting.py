"""Assign a rendezvous address to the ranks of a run before the first one starts."""

import logging
import uuid
from collections.abc import Iterable

from berth.db.lease import fenced
from pools.models import NodePool
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Pod, Workload
from scheduler.engine.plan import Place, Plan
from scheduler.observe import Seen
from scheduler.points import outside_transactions, point
from scheduler.post import Post

log = logging.getLogger(__name__)

Meeting = dict[str, str | int]


def meeting_places(seen: Seen, plan: Plan, post: Post) -> dict[str, Meeting]:
    """For every workload that the plan starts: stored with its start, it costs no transaction of its own."""
    outside_transactions()
    found: dict[str, Meeting] = {}
    for bundle in plan.bundles:
        for step in bundle.steps:
            workload = seen.workloads.get(step.workload)
            if not isinstance(step, Place) or step.reserved or step.workload in found or workload is None:
                continue
            if workload.phase in (Phase.PENDING, Phase.RESERVED):
                place = _place(seen.pools[bundle.pool], post)
                if place is not None:
                    found[step.workload] = place
    return found


def agree_where_to_meet(pods: Iterable[Pod], post: Post) -> None:
    """For those that started without."""
    outside_transactions()
    lacking = [pod for pod in pods if pod.workload.rendezvous is None]
    places: dict[uuid.UUID, Meeting] = {}
    for pod in lacking:
        place = None if pod.workload_id in places else _place(pod.node.pool, post)
        if place is not None:
            places[pod.workload_id] = place
    if not places:
        return
    with fenced(post.held):
        rows = Workload.objects.select_for_update().filter(pk__in=places, rendezvous__isnull=True)
        for workload in rows.order_by("pk"):
            Workload.objects.filter(pk=workload.pk).update(rendezvous=places[workload.pk])
    point("dispatch.met")
    agreed = dict(Workload.objects.filter(pk__in=places).values_list("pk", "rendezvous"))
    for pod in lacking:
        pod.workload.rendezvous = agreed.get(pod.workload_id)


def _place(pool: NodePool, post: Post) -> Meeting | None:
    try:
        address, port = post.runtimes(pool).rendezvous()
    except (RuntimeFailure, LookupError, OSError) as error:
        log.warning("no place to meet in pool %s: %s", pool.name, error)
        return None
    return {"address": address, "port": port}
