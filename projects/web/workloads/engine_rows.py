"""Fold the workloads of added inference engines under their service in the workload list."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import Count, F, Q, QuerySet

from projects.models import InferenceEngine, Workload, WorkloadKind
from projects.models.workloads import LIVE_PHASES

OPEN_MAX = 50


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """Added engines of one service that match the filters, and whether their rows are shown."""

    count: int
    is_open: bool


def engine_count(condition: Q) -> Count:
    """Return an aggregate that counts added engines whose workloads match a condition."""
    return Count("pk", filter=condition & Q(pk__in=added_engines().values("workload")))


def exclude_added_engines(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return the rows, except those of added engines whose service has its own row."""
    services = rows.filter(kind=WorkloadKind.SERVICE).order_by()
    engines = added_engines().filter(service__workload__in=services.values("pk"))
    return rows.exclude(pk__in=engines.values("workload"))


def only_added_engines(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return only the rows of added engines."""
    return rows.filter(pk__in=added_engines().values("workload"))


def insert_inference_engine_rows(
    shown: Sequence[Workload], matching: QuerySet[Workload], open_service: str
) -> list[Workload]:
    """Return the shown rows, with the matching engines of the expanded service inserted below its row.

    Each service's row gets its `EngineGroup` and the GPUs of all its live engines.
    """
    services = [row for row in shown if row.kind == WorkloadKind.SERVICE]
    engines = _engines_by_service(services, matching) if services else {}
    totals = _engine_gpus(services) if services else {}
    result = []
    for row in shown:
        row_engines, values = engines.get(row.pk, []), cast("Any", row)
        is_open = bool(row_engines) and str(row.pk) == open_service
        values.engine_group = EngineGroup(len(row_engines), is_open) if row_engines else None
        allocated, requested = totals.get(row.pk, (0, 0))
        values.gpus_now = row.gpu_milli_now + allocated
        values.gpus_requested = row.gpu_milli_min + requested
        result.append(row)
        for engine in row_engines[:OPEN_MAX] if is_open else ():
            nested = cast("Any", engine)
            nested.is_nested, nested.engine_group = True, None
            nested.gpus_now, nested.gpus_requested = engine.gpu_milli_now, engine.gpu_milli_min
            result.append(engine)
    return result


def _engines_by_service(
    services: Sequence[Workload], matching: QuerySet[Workload]
) -> dict[uuid.UUID, list[Workload]]:
    """Return the matching workloads of added engines, oldest first, keyed by the ID of their service's
    workload.
    """
    links = added_engines().filter(service__workload__in=services)
    service_of = dict(links.values_list("workload", "service__workload"))
    result = defaultdict[uuid.UUID, list[Workload]](list)
    rows = matching.filter(pk__in=list(service_of)) if service_of else matching.none()
    for engine in rows.select_related("array").order_by("submitted_at", "pk"):
        result[service_of[engine.pk]].append(engine)
    return result


def _engine_gpus(services: Sequence[Workload]) -> dict[uuid.UUID, tuple[int, int]]:
    """Return the allocated and requested milli-GPUs of each service's live added engines."""
    live = added_engines().filter(service__workload__in=services, workload__phase__in=LIVE_PHASES)
    amounts = ("service__workload", "workload__gpu_milli_now", "workload__gpu_milli_min")
    totals: dict[uuid.UUID, tuple[int, int]] = {}
    for service, allocated, requested in live.values_list(*amounts):
        total = totals.get(service, (0, 0))
        totals[service] = (total[0] + allocated, total[1] + requested)
    return totals


def added_engines() -> QuerySet[InferenceEngine]:
    """Return the engines that have a workload of their own, unlike a service's initial engines."""
    own = InferenceEngine.objects.filter(workload__isnull=False).order_by()
    return own.exclude(workload=F("service__workload"))
