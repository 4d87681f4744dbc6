"""Describe the activity of running workloads for the *Status* column of the workload list."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count

from berth.core.wording.words import format_count
from berth.server.web.numbers import duration
from projects.models import InferenceEngine, Phase, Pod, PodState, Workload, WorkloadKind
from projects.models.scaling import Origin
from projects.web.services.serving import engine_status, serving_status

NODES_MAX = 3


@dataclass(frozen=True, slots=True)
class Activity:
    """Activity of a running workload, with details for a second line.

    `tone` is the CSS class for a problem, or empty.
    """

    text: str
    detail: str = ""
    tone: str = ""
    state: str = ""  # title of a service's status, shown in place of its phase
    since: datetime | None = None  # start of this state, or None if unknown
    nodes: str = ""  # node names, unless the workload is a service or an inference engine

    @property
    def details(self) -> list[str]:
        """Comma-separated parts of `detail`. The first is capitalized, and none is broken across lines."""
        return f"{self.detail[:1].upper()}{self.detail[1:]}".split(", ") if self.detail else []

    def __str__(self) -> str:
        return self.text


def load_activity(rows: Iterable[Workload]) -> Mapping[UUID, Activity]:
    """Return the activity to show for each running workload, keyed by workload ID: its idle timeout, its
    status as a service, or its nodes.
    """
    running = [row for row in rows if row.phase == Phase.RUNNING]
    nodes = _describe_running_pods(running) if running else {}
    services = {row.pk: row for row in running if row.kind == WorkloadKind.SERVICE}
    activity = _describe_serving(services) if services else {}
    for row in running:
        if row.idle_timeout is not None:
            activity[row.pk] = Activity(f"Stops when idle for {duration(row.idle_timeout)}")
    return {**nodes, **activity}


def _describe_running_pods(running: Iterable[Workload]) -> dict[UUID, Activity]:
    pods = Pod.objects.filter(workload__in=list(running), state=PodState.RUNNING).order_by()
    rows = pods.values("workload_id").annotate(
        count=Count("pk"), nodes=ArrayAgg("node__name", distinct=True, order_by=["node__name"])
    )
    return {
        row["workload_id"]: Activity(
            pods_on_nodes(row["count"], row["nodes"]), nodes=join_node_names(row["nodes"])
        )
        for row in rows
    }


def pods_on_nodes(count: int, nodes: Sequence[str]) -> str:
    """Return text such as "4 pods on train-1". At most three nodes are named."""
    return f"{format_count(count, 'pod')} on {join_node_names(nodes)}"


def join_node_names(nodes: Sequence[str]) -> str:
    more = len(nodes) - NODES_MAX
    others = f" and {format_count(more, 'other node')}" if more > 0 else ""
    return ", ".join(nodes[:NODES_MAX]) + others


def _describe_serving(workloads: Mapping[UUID, Workload]) -> dict[UUID, Activity]:
    engines = InferenceEngine.objects.filter(ended_at__isnull=True).select_related("workload", "service")
    by_service: dict[UUID, list[InferenceEngine]] = defaultdict(list)
    for engine in engines.filter(service__workload__in=workloads):
        by_service[engine.service.workload_id].append(engine)
    activity = {pk: _service_activity(workloads[pk], its) for pk, its in by_service.items()}
    others = workloads.keys() - activity.keys()
    for engine in engines.filter(workload__in=others).select_related("service__workload"):
        title = engine_status(engine).title.lower()
        if engine.workload_id is not None:
            activity[engine.workload_id] = Activity(f"Engine of {engine.service.workload.name}: {title}")
    return activity


def _service_activity(workload: Workload, engines: Sequence[InferenceEngine]) -> Activity:
    """Return the status of a service, with the number of external engines, which use none of its GPUs."""
    status = serving_status(workload, engines)
    external = sum(engine.origin == Origin.EXTERNAL and not engine_status(engine).cause for engine in engines)
    text = f"{status.count} engines serving" + (f" ({external} external)" if external else "")
    tone = "" if status.tone == "good" else status.tone
    return Activity(text, status.causes, tone, status.title, status.since)
