"""Here pods are started and stopped, from their rows; a call that was made before does no harm."""

import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from berth.db.lease import Held, fenced
from pools.runtimes.base import Runtime, RuntimeFailure
from projects.models import Phase, Pod, PodState, Workload
from scheduler.dispatch.orders import order_for
from scheduler.points import point
from scheduler.post import Post

log = logging.getLogger(__name__)

AGAIN = timedelta(seconds=15)  # an order or a stop that shows no effect is given again


def start_pods(now: datetime, post: Post) -> list[str]:
    """Every pod whose row says that it starts. Returns what went wrong, as sentences."""
    assert not transaction.get_connection().in_atomic_block, "no runtime is called inside a transaction"
    waiting = [pod for pod in _starting() if _due(post.handed.started, pod.pk, now)]
    by_workload: dict[uuid.UUID, list[Pod]] = defaultdict(list)
    for pod in waiting:
        by_workload[pod.workload_id].append(pod)
    notes: list[str] = []
    for members in by_workload.values():
        if not post.leads():
            return [*notes, "The lead was lost while pods were being started."]
        try:
            _start_gang(members, now, post)
        except (RuntimeFailure, OSError, ValueError, KeyError, StopIteration) as error:
            log.warning("pods of %s could not be started: %s", members[0].workload.name, error)
            notes.append(f"Pods of {members[0].workload.handle} could not be started: {error}")
    return notes


def stop_pods(now: datetime, post: Post) -> list[str]:
    """Every pod whose row says that it stops."""
    assert not transaction.get_connection().in_atomic_block, "no runtime is called inside a transaction"
    rows = Pod.objects.filter(state=PodState.STOPPING).select_related("node__pool", "workload").order_by("pk")
    pods = list(rows)
    post.handed.stopped = {pk: at for pk, at in post.handed.stopped.items() if pk in {pod.pk for pod in pods}}
    notes: list[str] = []
    for pod in pods:
        if not _due(post.handed.stopped, pod.pk, now):
            continue
        if not post.leads():
            return [*notes, "The lead was lost while pods were being stopped."]
        spec = post.specs.of(pod.workload).spec
        point("dispatch.before_stop")
        try:
            post.runtimes(pod.node.pool).stop(str(pod.pk), spec.grace_period_seconds if spec else 0)
        except (RuntimeFailure, OSError) as error:
            log.warning("pod %s could not be stopped: %s", pod.pk, error)
            notes.append(f"Pod {pod.pk} could not be stopped: {error}")
            continue
        post.handed.stopped[pod.pk] = now
        point("dispatch.stopped")
    return notes


def _starting() -> Iterable[Pod]:
    return (
        Pod.objects.filter(state=PodState.STARTING, workload__phase__in=(Phase.STARTING, Phase.RUNNING))
        .select_related("workload__project", "node__pool", "allocation")
        .order_by("workload_id", "rank", "pk")
    )


def _start_gang(members: list[Pod], now: datetime, post: Post) -> None:
    workload = members[0].workload
    runtime = post.runtimes(members[0].node.pool)
    _rendezvous(workload, runtime, post.held)
    spec = post.specs.of(workload).spec
    if spec is None:
        raise ValueError("its document cannot be read any more")
    world = list(
        Pod.objects.filter(
            workload=workload, run=workload.run, state__in=("starting", "running", "succeeded")
        )
    )
    for pod in members:
        pod.workload = workload
        point("dispatch.before_start")
        runtime.start(order_for(pod, spec, world))
        post.handed.started[pod.pk] = now
        point("dispatch.started")


def _rendezvous(workload: Workload, runtime: Runtime, held: Held) -> None:
    """The ranks of one run meet at one address, agreed on before the first of them starts."""
    if workload.rendezvous is not None:
        return
    address, port = runtime.rendezvous()
    place = {"address": address, "port": port}
    with fenced(held):
        Workload.objects.filter(pk=workload.pk, run=workload.run, rendezvous__isnull=True).update(
            rendezvous=place
        )
    workload.refresh_from_db(fields=["rendezvous"])
    point("dispatch.met")
    if workload.rendezvous is None:
        raise ValueError("its run is over already")


def _due(handed: dict[uuid.UUID, datetime], pk: uuid.UUID, now: datetime) -> bool:
    return pk not in handed or now - handed[pk] >= AGAIN
