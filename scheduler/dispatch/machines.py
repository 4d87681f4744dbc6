"""Start and stop pods from their rows, idempotently."""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from berth.db.lease import fenced
from pools.runtimes.base import RuntimeFailure
from projects.models import Phase, Pod, PodState
from scheduler.dispatch.endpoints import give_endpoints, serves
from scheduler.dispatch.meeting import agree_where_to_meet
from scheduler.dispatch.orders import order_for
from scheduler.dispatch.ports import give_ports, opens_ports
from scheduler.points import outside_transactions, point
from scheduler.post import Post

log = logging.getLogger(__name__)

AGAIN = timedelta(seconds=15)  # an order or a stop that shows no effect is given again


def start_pods(now: datetime, post: Post) -> list[str]:
    """Every pod whose row says that it starts. Returns what went wrong, as sentences."""
    outside_transactions()
    waiting = [pod for pod in _starting() if _due(post.handed.started, pod.pk, now)]
    if not waiting:
        return []
    notes: list[str] = []
    failures: dict[uuid.UUID, str] = {}
    agree_where_to_meet(waiting, post)
    give_endpoints(waiting, post)
    give_ports(waiting, post)
    worlds = _worlds(waiting)
    for pod in waiting:
        if not post.leads():
            return [*notes, "The lead was lost while pods were being started."]
        failures[pod.pk] = ""
        try:
            _start(pod, worlds[pod.workload_id], post)
        except (RuntimeFailure, LookupError, OSError, ValueError, StopIteration) as error:
            log.warning("pod %s could not be started: %s", pod.pk, error)
            notes.append(f"Pod {pod.role} {pod.index} of {pod.workload.handle} could not be started: {error}")
            failures[pod.pk] = f"could not be started yet: {error}"
            continue
        post.handed.started[pod.pk] = now
        point("dispatch.started")
    _keep_reasons([pod for pod in waiting if failures[pod.pk] != pod.message], failures, post)
    return notes


def _keep_reasons(pods: Sequence[Pod], failures: Mapping[uuid.UUID, str], post: Post) -> None:
    """Store with each pod why it could not be started, for its page and for the end of its workload."""
    if not pods:
        return
    with fenced(post.held):
        for pod in Pod.objects.select_for_update().filter(pk__in=[pod.pk for pod in pods]).order_by("pk"):
            if pod.state == PodState.STARTING:
                Pod.objects.filter(pk=pod.pk).update(message=failures[pod.pk])
    point("dispatch.reasons")


def stop_pods(now: datetime, post: Post) -> list[str]:
    """Every pod whose row says that it stops."""
    outside_transactions()
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
        except (RuntimeFailure, LookupError, OSError) as error:
            log.warning("pod %s could not be stopped: %s", pod.pk, error)
            notes.append(f"Pod {pod.pk} could not be stopped: {error}")
            continue
        post.handed.stopped[pod.pk] = now
        point("dispatch.stopped")
    return notes


def _starting() -> Iterable[Pod]:
    return (
        Pod.objects.filter(state=PodState.STARTING, workload__phase__in=(Phase.STARTING, Phase.RUNNING))
        .select_related(
            "workload__project", "workload__session", "node__pool", "node__environment", "allocation"
        )
        .defer("workload__session__setup")
        .order_by("workload_id", "rank", "pk")
    )


def _start(pod: Pod, world: Sequence[Pod], post: Post) -> None:
    spec = post.specs.of(pod.workload).spec
    if spec is None:
        raise ValueError("its document cannot be read any more")
    if pod.workload.rendezvous is None:
        raise ValueError("its ranks have not agreed where to meet")
    if serves(pod) and pod.endpoint is None:
        raise ValueError("it has no port to serve at")
    if opens_ports(pod) and pod.ports is None:
        raise ValueError("it has no ports to open")
    order = order_for(pod, spec, world)
    point("dispatch.before_start")
    post.runtimes(pod.node.pool).start(order)


def _worlds(pods: Iterable[Pod]) -> dict[uuid.UUID, list[Pod]]:
    """By workload, all pods of its present run that count."""
    runs = {pod.workload_id: pod.run for pod in pods}
    worlds: dict[uuid.UUID, list[Pod]] = {pk: [] for pk in runs}
    rows = Pod.objects.filter(workload_id__in=runs, state__in=("starting", "running", "succeeded"))
    for pod in rows.select_related("node").order_by("workload_id", "rank", "pk"):
        if pod.run == runs[pod.workload_id]:
            worlds[pod.workload_id].append(pod)
    return worlds


def _due(handed: dict[uuid.UUID, datetime], pk: uuid.UUID, now: datetime) -> bool:
    return pk not in handed or now - handed[pk] >= AGAIN
