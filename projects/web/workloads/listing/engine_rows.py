"""Fold the workloads of added inference engines under their service in the workload list."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, cast

from django.db.models import F, Q, QuerySet

from projects.models import InferenceEngine, Phase, Workload, WorkloadKind
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES

OPEN_MAX = 50
# Phases of each state in which an engine is folded under its service. In another state, it has its own row.
STATE_PHASES: tuple[tuple[str, ...], ...] = (
    (Phase.PENDING, Phase.RESERVED),
    (Phase.STARTING, Phase.RUNNING, Phase.STOPPING),
    (Phase.SUSPENDED,),
    *((phase,) for phase in ENDED_PHASES),
)


@dataclass(frozen=True, slots=True)
class EngineGroup:
    """Folded engines of one service that match the filters, and whether their rows are shown."""

    count: int
    is_open: bool


def exclude_folded_engines(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return the rows, except those of added engines in the same state as their service, if it has a row."""
    return rows.exclude(pk__in=_folded_engines(rows).values("workload"))


def only_folded_engines(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return only the rows that `exclude_folded_engines` omits."""
    return rows.filter(pk__in=_folded_engines(rows).values("workload"))


def exclude_added_engines(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Return the rows, except those of added engines whose service has its own row."""
    services = rows.filter(kind=WorkloadKind.SERVICE).order_by()
    engines = added_engines().filter(service__workload__in=services.values("pk"))
    return rows.exclude(pk__in=engines.values("workload"))


def insert_inference_engine_rows(
    shown: Sequence[Workload], matching: QuerySet[Workload], open_service: str
) -> list[Workload]:
    """Return the shown rows, with the folded engines of the expanded service inserted below its row.

    Each service's row gets its `EngineGroup` and the GPUs of all its live engines. Rows of added engines are
    marked with `is_engine`.
    """
    services = [row for row in shown if row.kind == WorkloadKind.SERVICE]
    links = _load_engine_links(services) if services else {}
    engines = _engines_by_service(links, matching)
    totals = _engine_gpus(services) if services else {}
    result = []
    for row in shown:
        row_engines, values = engines.get(row.pk, []), cast("Any", row)
        values.is_engine = row.pk in links
        is_open = bool(row_engines) and str(row.pk) == open_service
        values.engine_group = EngineGroup(len(row_engines), is_open) if row_engines else None
        allocated, requested = totals.get(row.pk, (0, 0))
        values.gpus_now = row.gpu_milli_now + allocated
        values.gpus_requested = row.gpu_milli_min + requested
        result.append(row)
        for engine in row_engines[:OPEN_MAX] if is_open else ():
            nested = cast("Any", engine)
            nested.is_nested, nested.is_engine, nested.engine_group = True, True, None
            nested.gpus_now, nested.gpus_requested = engine.gpu_milli_now, engine.gpu_milli_min
            result.append(engine)
    return result


def _load_engine_links(services: Sequence[Workload]) -> dict[uuid.UUID, uuid.UUID | None]:
    """Return the service of each added engine that is folded under its row, or None if it has its own row.

    Keys and values are IDs of workloads. Rows of added engines may be among `services`.
    """
    rows = added_engines().filter(Q(service__workload__in=services) | Q(workload__in=services))
    columns = ("workload", "workload__phase", "service__workload", "service__workload__phase")
    return {
        engine: service if _state_of(engine_phase) == _state_of(service_phase) else None
        for engine, engine_phase, service, service_phase in rows.values_list(*columns)
    }


def _engines_by_service(
    links: Mapping[uuid.UUID, uuid.UUID | None], matching: QuerySet[Workload]
) -> dict[uuid.UUID, list[Workload]]:
    """Return the matching workloads of folded engines, oldest first, keyed by the ID of their service's
    workload.
    """
    service_of = {engine: service for engine, service in links.items() if service is not None}
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


def _folded_engines(rows: QuerySet[Workload]) -> QuerySet[InferenceEngine]:
    """Return the added engines that are in the same state as their service, which is among the rows."""
    services = rows.filter(kind=WorkloadKind.SERVICE).order_by()
    conditions = (Q(workload__phase__in=each, service__workload__phase__in=each) for each in STATE_PHASES)
    same_state = reduce(or_, conditions)
    return added_engines().filter(same_state, service__workload__in=services.values("pk"))


def _state_of(phase: str) -> tuple[str, ...]:
    return next(phases for phases in STATE_PHASES if phase in phases)


def added_engines() -> QuerySet[InferenceEngine]:
    """Return the engines that have a workload of their own, unlike a service's initial engines."""
    own = InferenceEngine.objects.filter(workload__isnull=False).order_by()
    return own.exclude(workload=F("service__workload"))
