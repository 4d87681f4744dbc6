"""Activity of services and interactive workloads, for the column *Status* of the workload list."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

from berth.server.web.numbers import duration
from projects.models import InferenceEngine, Phase, Workload, WorkloadKind
from projects.web.services.serving import engine_status, serving_status


def load_activity(rows: Iterable[Workload]) -> Mapping[UUID, str]:
    """Return a sentence for each running service and inference engine, and for idle timeouts."""
    running = [row for row in rows if row.phase == Phase.RUNNING]
    services = {row.pk: row for row in running if row.kind == WorkloadKind.SERVICE}
    activity = _serving(services) if services else {}
    for row in running:
        if row.idle_timeout is not None:
            activity[row.pk] = f"Stops when idle for {duration(row.idle_timeout)}"
    return activity


def _serving(workloads: Mapping[UUID, Workload]) -> dict[UUID, str]:
    engines = InferenceEngine.objects.filter(ended_at__isnull=True).select_related("workload", "service")
    by_service: dict[UUID, list[InferenceEngine]] = defaultdict(list)
    for engine in engines.filter(service__workload__in=workloads):
        by_service[engine.service.workload_id].append(engine)
    activity = {pk: serving_status(workloads[pk], its).text for pk, its in by_service.items()}
    others = workloads.keys() - activity.keys()
    for engine in engines.filter(workload__in=others).select_related("service__workload"):
        title = engine_status(engine).title.lower()
        if engine.workload_id is not None:
            activity[engine.workload_id] = f"Engine of {engine.service.workload.name}: {title}"
    return activity
