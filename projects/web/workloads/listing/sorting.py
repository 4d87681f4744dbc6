"""Sort orders of the workload list.

Each order uses the values that the rows show: an array's row has the totals of its tasks, and a service's row
includes its added engines.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Exists,
    F,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce, Extract

from berth.server.web.lists.paging import SortColumns
from projects.models import ArrayState, InferenceEngine, Phase, Workload, WorkloadKind
from projects.models.scaling import EngineState
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE_REASON
from projects.web.workloads.listing.engine_rows import added_engines

ALL_RUNNING = r"^((\d+) of \2 pods running\.|All required pods are running\.)$"
DEFAULT_SORT = "-submitted"
SORTS: SortColumns = {  # rows with equal values are sorted by submission time
    "submitted": "submitted_at",
    "name": "shown_name",
    "since": ("shown_since", "submitted_at"),
    "gpus": ("liveness", "shown_gpu_milli", "requested_gpu_milli", "submitted_at"),
    "priority": ("priority", "submitted_at"),
    "state": ("shown_state", "submitted_at"),
    "department": ("project__department__name", "submitted_at"),
    "project": ("project__name", "submitted_at"),
    "runs": ("shown_runs", "submitted_at"),
    "evictions": ("shown_evictions", "submitted_at"),
    "wait": ("wait_seconds", "submitted_at"),
    "attention": ("attention", "submitted_at"),
}
SORT_CHOICES = {
    "": "Newest first",
    "submitted": "Oldest first",
    "attention": "Failing and pending first",
    "-gpus": "Most GPUs",
    "-priority": "Highest priority",
    "name": "Name",
}
# Columns that are computed only if they are shown or used for sorting.
COMPUTED = frozenset({"wait", "runs", "evictions"})
IS_TASK = Q(array__isnull=False)
IS_ACTIVE_TASK = Q(array__state=ArrayState.ACTIVE)
IS_RUNNING_SERVICE = Q(kind=WorkloadKind.SERVICE, phase=Phase.RUNNING, array__isnull=True)
Columns: TypeAlias = Mapping[str, Combinable]
RUNNING_PHASES = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
PARTLY_SERVING, NOT_SERVING = "partly serving", "not serving"


def requested_sort(sort: str) -> str:
    """Return the sort order of a query parameter, or the default order if it is invalid."""
    return sort if sort.removeprefix("-") in SORTS else DEFAULT_SORT


def annotate_values(
    rows: QuerySet[Workload], sort: str, columns: Iterable[str] = (), *, each_task: bool = False
) -> QuerySet[Workload]:
    """Annotate the rows with the values for a sort order, and for those `columns` that are in COMPUTED.

    Unless `each_task` is set, the row of an array's first task has the values of the whole array.
    """
    for key in {sort.removeprefix("-"), *COMPUTED.intersection(columns)} & KEYS.keys():
        rows = rows.annotate(**KEYS[key](each_task))
    if sort.removeprefix("-") == "gpus":
        rows = rows.annotate(liveness=_live_rows_key(each_task, is_descending=sort.startswith("-")))
    return rows


def _live_rows_key(each_task: bool, *, is_descending: bool) -> Case:
    """Return a sort key that puts live rows before ended rows, whose GPUs are no longer allocated."""
    live, ended = (1, 0) if is_descending else (0, 1)
    has_ended = Q(phase__in=ENDED_PHASES)
    if not each_task:
        has_ended = Q(has_ended, array__isnull=True) | (IS_TASK & ~IS_ACTIVE_TASK)
    return Case(When(has_ended, then=ended), default=live, output_field=IntegerField())


def _wait_columns(each_task: bool) -> Columns:
    """Return the seconds from submission to the first start, or 0."""
    own: Combinable = _seconds(F("first_started_at") - F("submitted_at"))
    if not each_task:
        of_array = _seconds(_first_start(_all_array_attempts()) - F("array__submitted_at"))
        own = Case(When(IS_TASK, then=of_array), default=own)
    return {"wait_seconds": Coalesce(own, Value(0))}


def _first_start(tasks: QuerySet[Workload]) -> Subquery:
    starts = tasks.filter(first_started_at__isnull=False).order_by("first_started_at")
    return Subquery(starts.values("first_started_at")[:1])


def _since_columns(each_task: bool) -> Columns:
    """Return the times for the column *State since*. An array's time is defined as in `ArrayProgress`."""
    if each_task:
        return {"shown_since": F("since")}
    tasks = _current_array_tasks().filter(held=False)
    started = tasks.filter(first_started_at__isnull=False)
    last_change = Subquery(started.values("array").annotate(at=Max("since")).values("at"))
    changed = Case(
        When(~IS_ACTIVE_TASK, then=F("array__ended_at")),
        When(Exists(tasks.filter(phase__in=RUNNING_PHASES)), then=_first_start(tasks)),
        default=last_change,
    )
    of_array = Coalesce(changed, F("array__submitted_at"))
    return {"shown_since": Case(When(IS_TASK, then=of_array), default=F("since"))}


def _seconds(duration: Combinable) -> Cast:
    return Cast(Extract(duration, "epoch"), IntegerField())


def _name_columns(each_task: bool) -> Columns:
    return {"shown_name": F("name") if each_task else Coalesce("array__name", "name")}


def _gpu_columns(each_task: bool) -> Columns:
    """Return the GPUs that the column *GPUs* shows, and the requested GPUs.

    The column shows the allocated GPUs or, for ended rows, the requested GPUs.
    """
    ended = When(phase__in=ENDED_PHASES, array__isnull=True, then=F("gpu_milli_min"))
    if each_task:
        ended = When(phase__in=ENDED_PHASES, then=F("gpu_milli_min"))
        shown: Combinable = Case(ended, default=F("gpu_milli_now"))
        return {"shown_gpu_milli": shown, "requested_gpu_milli": F("gpu_milli_min")}

    current_tasks = _current_array_tasks().filter(held=False, phase__in=LIVE_PHASES)
    is_service = Q(kind=WorkloadKind.SERVICE, array__isnull=True)

    def total(column: str) -> Case:
        return Case(
            When(IS_ACTIVE_TASK, then=_sum(current_tasks, column)),
            When(is_service, then=F(column) + _sum(_live_engine_workloads(), column)),
            default=F(column),
        )

    ended_array = When(IS_TASK & ~IS_ACTIVE_TASK, then=F("array__gpu_milli_min"))
    shown = Case(ended, ended_array, default=total("gpu_milli_now"))
    return {"shown_gpu_milli": shown, "requested_gpu_milli": total("gpu_milli_min")}


def _eviction_columns(each_task: bool) -> Columns:
    return {"shown_evictions": _sum_over_array("preemptions", each_task)}


def _run_columns(each_task: bool) -> Columns:
    return {"shown_runs": _sum_over_array("run", each_task)}


def _state_columns(each_task: bool) -> Columns:
    """Return the sort values of the column *State*, in lower case, such as "unschedulable"."""
    unschedulable = When(phase=Phase.PENDING, reason=UNSCHEDULABLE_REASON, then=Value("unschedulable"))
    of_workload: list[When] = [unschedulable]
    if not each_task:
        of_workload += [
            When(IS_RUNNING_SERVICE & ~Exists(_engines_by_serving_state(True)), then=Value(NOT_SERVING)),
            When(IS_RUNNING_SERVICE & Exists(_engines_by_serving_state(False)), then=Value(PARTLY_SERVING)),
            When(IS_RUNNING_SERVICE, then=Value("serving")),
        ]
    of_array = [] if each_task else _array_state_cases()
    default = Cast("phase", CharField())
    return {"shown_state": Case(*of_array, *of_workload, default=default, output_field=CharField())}


def _array_state_cases() -> list[When]:
    tasks = _current_array_tasks()
    running = tasks.filter(phase__in=RUNNING_PHASES)
    queued = tasks.filter(phase=Phase.PENDING, held=False)
    is_unschedulable = Exists(queued.filter(reason=UNSCHEDULABLE_REASON)) & ~Exists(
        queued.exclude(reason=UNSCHEDULABLE_REASON)
    )
    pending = tasks.filter(phase__in=(Phase.PENDING, Phase.RESERVED))
    return [
        When(IS_TASK & ~IS_ACTIVE_TASK, then=Cast("array__state", CharField())),
        When(IS_TASK & Exists(running), then=Value(Phase.RUNNING.value)),
        When(IS_TASK & is_unschedulable, then=Value("unschedulable")),
        When(IS_TASK & Exists(pending), then=Value(Phase.PENDING.value)),
        When(IS_TASK, then=Value(Phase.SUSPENDED.value)),
    ]


def _attention_columns(each_task: bool) -> Columns:
    """Rank rows by urgency: failures, then unschedulable or degraded rows, then pending rows, then
    all others.
    """
    failed_tasks = _current_array_tasks().filter(phase=Phase.FAILED)
    degraded = Q(phase=Phase.RUNNING) & ~Q(message__regex=ALL_RUNNING)
    if not each_task:
        degraded &= Q(array__isnull=True)
    ranks = [
        When(shown_state=Phase.FAILED, then=0),
        *([] if each_task else [When(IS_ACTIVE_TASK & Exists(failed_tasks), then=0)]),
        When(shown_state__in=("unschedulable", NOT_SERVING, PARTLY_SERVING), then=1),
        When(degraded, then=1),
        When(shown_state__in=(Phase.PENDING, Phase.RESERVED), then=2),
        When(shown_state__in=(Phase.STARTING, Phase.STOPPING), then=3),
        When(shown_state__in=(Phase.RUNNING, "serving"), then=4),
    ]
    return {**_state_columns(each_task), "attention": Case(*ranks, default=5, output_field=IntegerField())}


def _sum_over_array(column: str, each_task: bool) -> Combinable:
    if each_task:
        return F(column)
    total = _sum(_all_array_attempts(), column)
    return Case(When(IS_TASK, then=total), default=F(column), output_field=BigIntegerField())


def _current_array_tasks() -> QuerySet[Workload]:
    return _all_array_attempts().filter(superseded=False)


def _all_array_attempts() -> QuerySet[Workload]:
    """Return all attempts of the tasks in the row's array."""
    return Workload.objects.filter(array=OuterRef("array")).order_by()


def _live_engine_workloads() -> QuerySet[Workload]:
    engines = added_engines().filter(service__workload=OuterRef(OuterRef("pk"))).values("workload")
    return Workload.objects.filter(pk__in=engines, phase__in=LIVE_PHASES).order_by()


def _engines_by_serving_state(is_serving: bool) -> QuerySet[InferenceEngine]:
    engines = InferenceEngine.objects.filter(service__workload=OuterRef("pk"), ended_at__isnull=True)
    serving = Q(state=EngineState.ACTIVE, is_healthy=True)
    return engines.filter(serving if is_serving else ~serving).order_by()


def _sum(rows: QuerySet[Workload], column: str) -> Combinable:
    """Return a subquery for the sum of a column, which is 0 if there are no rows."""
    # Grouping by a constant yields a single row.
    total = rows.annotate(group=Value(1)).values("group").annotate(total=Sum(column)).values("total")
    return Coalesce(Subquery(total, output_field=BigIntegerField()), Value(0))


KEYS: Mapping[str, Callable[[bool], Columns]] = {
    "name": _name_columns,
    "state": _state_columns,
    "gpus": _gpu_columns,
    "since": _since_columns,
    "wait": _wait_columns,
    "runs": _run_columns,
    "evictions": _eviction_columns,
    "attention": _attention_columns,
}
