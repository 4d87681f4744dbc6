"""Describe the activity of running workloads for the *Status* column of the workload list."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count

from berth.core.words import format_count
from berth.server.web.numbers import duration
from projects.models import InferenceEngine, Phase, Pod, PodState, Workload, WorkloadKind
from projects.models.scaling import Origin
from projects.web.services.serving import engine_status, serving_status

NODES_MAX = 3


def load_activity(rows: Iterable[Workload]) -> Mapping[UUID, str]:
    """Return a sentence for each running workload.

    The sentence states the status of a service or inference engine, or the nodes of any other workload.
    """
    running = [row for row in rows if row.phase == Phase.RUNNING]
    nodes = _describe_running_pods(running) if running else {}
    services = {row.pk: row for row in running if row.kind == WorkloadKind.SERVICE}
    activity = _describe_serving(services) if services else {}
    for row in running:
        if row.idle_timeout is not None:
            activity[row.pk] = f"Stops when idle for {duration(row.idle_timeout)}"
    return {**nodes, **activity}


def _describe_running_pods(running: Iterable[Workload]) -> dict[UUID, str]:
    """Describe each workload's running pods: their number and their nodes."""
    pods = Pod.objects.filter(workload__in=list(running), state=PodState.RUNNING).order_by()
    rows = pods.values("workload_id").annotate(
        count=Count("pk"), nodes=ArrayAgg("node__name", distinct=True, order_by=["node__name"])
    )
    return {row["workload_id"]: pods_on_nodes(row["count"], row["nodes"]) for row in rows}


def pods_on_nodes(count: int, nodes: Sequence[str]) -> str:
    """Return text such as "4 pods on train-1". At most three nodes are named."""
    names = ", ".join(nodes[:NODES_MAX])
    more = len(nodes) - NODES_MAX
    return f"{format_count(count, 'pod')} on {names}" + (
        f" and {format_count(more, 'other node')}" if more > 0 else ""
    )


def _describe_serving(workloads: Mapping[UUID, Workload]) -> dict[UUID, str]:
    engines = InferenceEngine.objects.filter(ended_at__isnull=True).select_related("workload", "service")
    by_service: dict[UUID, list[InferenceEngine]] = defaultdict(list)
    for engine in engines.filter(service__workload__in=workloads):
        by_service[engine.service.workload_id].append(engine)
    activity = {pk: _serving_sentence(workloads[pk], its) for pk, its in by_service.items()}
    others = workloads.keys() - activity.keys()
    for engine in engines.filter(workload__in=others).select_related("service__workload"):
        title = engine_status(engine).title.lower()
        if engine.workload_id is not None:
            activity[engine.workload_id] = f"Engine of {engine.service.workload.name}: {title}"
    return activity


def _serving_sentence(workload: Workload, engines: Sequence[InferenceEngine]) -> str:
    """Return the status of a service. External engines are counted because they hold none of its GPUs."""
    text = serving_status(workload, engines).text
    external = sum(engine.origin == Origin.EXTERNAL for engine in engines)
    return f"{text} · {external} external" if external else text
