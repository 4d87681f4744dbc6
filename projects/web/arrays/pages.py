"""Array page with its tasks, failures and metrics."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, cast

from django.db.models import Count, Max, Min, QuerySet
from django.db.models.fields.json import KT
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_GET

from berth.core.spec import ArraySpec
from berth.core.wording.words import format_count
from berth.documents.ordered import dump_workload
from berth.server.api.transport.streaming import csv_response
from berth.server.web.lists.paging import PageSlice, load_slice
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.models import ArrayState, Phase, Workload, WorkloadArray
from projects.queries.costs import array_gpu_hours_and_cost
from projects.queries.reported_metrics import can_metrics_change
from projects.selectors import find_array, workloads
from projects.services.arrays import TaskCounts, count_tasks
from projects.services.arrays.stop_rules import PREVIEW_TASKS_MAX, parse_stop_rule, preview_stops
from projects.services.dependencies import dependency_statuses, find_dependents
from projects.services.workloads.pending.unschedulable import REASON as UNSCHEDULABLE
from projects.web.arrays.estimates import RuntimeEstimate, estimate_runtime
from projects.web.arrays.failures import load_failures
from projects.web.arrays.folding import fold_tasks
from projects.web.arrays.metrics import Ranking, load_best_values, load_ranking
from projects.web.arrays.parameters import (
    PREFIX,
    matching_indexes,
    parameter_columns,
    parameter_filters,
    slice_by_parameter,
)
from projects.web.arrays.progress import ArrayProgress, load_progress
from projects.web.workloads.actions import bulk_actions
from projects.web.workloads.activity import load_activity
from projects.web.workloads.failed_pods import load_log_urls
from projects.web.workloads.listing.columns import run_seconds
from projects.web.workloads.listing.filters import STATES

FIXED_COLUMNS = 8  # maximum number of task table columns, excluding parameters
MAX_SQUARES = 1000  # maximum number of tasks that are shown as squares
MAX_HELD_ROWS = 3  # maximum number of waiting tasks that are listed individually
SORTS = {"index": "array_index", "state": "phase", "since": "since", "attempt": "attempt", "runs": "run"}
CSV_COLUMNS = {
    "Task": "name", "Index": "array_index", "State": "phase", "Reason": "reason", "Status": "message",
    "Attempt": "attempt", "Runs": "run", "Started": "started_at", "Ended": "ended_at",
    "Exit code": "exit_code", "ID": "pk",
}  # fmt: skip
Parameters = Mapping[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class TaskSquare:
    """Square that represents one task in the task grid."""

    pk: uuid.UUID
    index: int
    # "held" if the task waits for earlier tasks, otherwise the task's phase.
    # All phases of running tasks count as "running", and "reserved" counts as "pending".
    kind: str
    title: str
    is_filtered_out: bool = False


@dataclass(frozen=True, slots=True)
class IdleReason:
    """Sentence that says why no task of an active array is running, and the first queued task."""

    sentence: str
    task: Workload | None = None
    starts: datetime | None = None  # earliest expected start of a queued task


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that wait for earlier tasks, with the lowest and the highest index."""

    count: int
    first: int
    last: int


@signed_in
@require_GET
def detail(request: Request, array_id: uuid.UUID) -> HttpResponse | StreamingHttpResponse:
    array = find_array(request.actor, array_id)
    header = _header_context(request, array)
    progress: ArrayProgress = header["progress"]
    tasks = all_tasks = workloads(request.actor).filter(array=array, superseded=False)
    parameters = ArraySpec.model_validate(array.spec["array"]).parameters()
    filters = parameter_filters(parameters, request.GET)
    matching = matching_indexes(parameters, filters)
    if matching is not None:
        tasks = tasks.filter(array_index__in=matching)
    counts = progress.counts if matching is None else count_tasks(tasks)
    tabs = _state_tabs(counts)
    state = requested_state = request.GET.get("state", "")
    is_export = request.GET.get("format") == "csv"
    if state not in {word for word, _, _ in tabs}:
        state = tabs[0][0] if tabs[0][2] and not is_export else "all"
    phases = STATES[state][1] if state in STATES else (state,)
    if state != "all":
        tasks = tasks.filter(phase__in=phases)
    if is_export:
        return _as_csv(request, array, tasks, parameters)
    ranking = load_ranking(array, request.GET.get("metric", ""), request.GET.get("goal", ""))
    highlighted = phases if state == requested_state else tuple(Phase)
    has_squares = array.task_count <= MAX_SQUARES
    squares = _task_squares(array, all_tasks, parameters, matching, highlighted) if has_squares else []
    table = _table_context(request, tasks, parameters, ranking)
    gpu_hours, cost = array_gpu_hours_and_cost(array.pk, timezone.now())
    estimate = estimate_runtime(array, progress)
    idle_reason = _idle_reason(all_tasks, progress) if array.state == ArrayState.ACTIVE else None
    context = {
        **header,
        **table,
        "rows_text": _describe_listed_tasks(
            table["slice"], next(count for word, _, count in tabs if word == state)
        ),
        "states": tabs,
        "state": state,
        "queued_and_held": (queued, counts.held)
        if (queued := counts.pending + counts.reserved) and counts.held
        else (),
        "filters": filters,
        "is_filtered": matching is not None,
        "other_matches": [
            (word, title.lower(), count)
            for word, title, count in tabs
            if count and word not in ("live", "ended", "all")
        ],
        "squares": _group_by_ten(squares),
        "failures": load_failures(array) if progress.counts.failed else [],
        "waits_for": dependency_statuses(request.actor, array),
        "awaited_by": find_dependents(request.actor, array),
        "estimate": estimate,
        "gpu_hours": gpu_hours,
        "cost": cost,
        "idle_reason": idle_reason,
        "expected_end": _expected_end(idle_reason, estimate),
        "stop_rule": parse_stop_rule(array),
        "stops": preview_stops(array),
        "preview_tasks_max": PREVIEW_TASKS_MAX,
        "has_outputs": bool(array.spec.get("outputs")),
        "ranking": ranking,
        "metrics_follow": can_metrics_change(array.ended_at, timezone.now())
        and bool(ranking or array.ended_at),
        "tab": "overview",
    }
    return page(request, "projects/arrays/page.html", context, inner="projects/arrays/body.html")


@signed_in
@require_GET
def show_spec(request: Request, array_id: uuid.UUID) -> HttpResponse:
    array = find_array(request.actor, array_id)
    context = {**_header_context(request, array), "document": dump_workload(array.spec), "tab": "spec"}
    return page(request, "projects/arrays/page.html", context, inner="projects/arrays/body.html")


def _header_context(request: Request, array: WorkloadArray) -> dict[str, Any]:
    progress = load_progress([array])[array.pk]
    changes = _possible_changes(request, array, progress.counts)
    return {
        "array": array,
        "task": workloads(request.actor).filter(array=array).order_by("array_index", "-attempt").first(),
        "progress": progress,
        "changes": changes,
        "offers_retry": "retry" in changes and progress.counts.failed > 0,
    }


def _table_context(
    request: Request, tasks: QuerySet[Workload], parameters: Parameters, ranking: Ranking | None
) -> dict[str, Any]:
    columns = parameter_columns(parameters)
    show_all, cursor = request.GET.get("rows") == "all", request.GET.get("cursor", "")
    sort, held = request.GET.get("sort", "index"), None
    if sort.removeprefix("-") in {f"{PREFIX}{name}" for name in columns}:
        row_slice = slice_by_parameter(tasks, parameters, sort, cursor)
    else:
        held = None if show_all or sort != "index" else _held_tasks(tasks)
        queued = tasks.filter(held=False) if held else tasks
        row_slice = load_slice(queued, SORTS, sort=sort, default="index", cursor=cursor)
    activity = load_activity(row_slice.rows)
    logs = load_log_urls(row_slice.rows)
    best = load_best_values(row_slice.rows, ranking) if ranking is not None else {}
    for task in row_slice.rows:
        cast("Any", task).runtime = run_seconds(task)
        cast("Any", task).activity = activity.get(task.pk, "")
        cast("Any", task).failure_log = logs.get(task.pk, "")
        cast("Any", task).metric = best.get(task.pk, "")
        cast("Any", task).is_short = task.held or task.phase in (Phase.COMPLETED, Phase.CANCELLED)
    has_parameters = any(parameters.get(task.array_index or 0) for task in row_slice.rows)
    fold_tasks(row_slice.rows, fold=row_slice.sort == "index" and not show_all and not has_parameters)
    return {
        "slice": row_slice,
        "held": held,
        "is_unfolded": show_all and sort == "index",
        "sort": row_slice.sort,
        "tasks": [
            (task, values, [(name, values.get(name, "")) for name in columns])
            for task in row_slice.rows
            for values in [parameters.get(task.array_index or 0, {})]
        ],
        "parameter_columns": columns,
        "parameter_prefix": PREFIX,
        "metric_column": ranking.name if ranking is not None and best else "",
        "column_count": FIXED_COLUMNS + len(columns),
        "has_statuses": any(not task.held and task.phase != Phase.COMPLETED for task in row_slice.rows),
        "has_runtimes": any(task.ended_at and task.started_at for task in row_slice.rows),
        "has_attempts": any(task.attempt > 1 for task in row_slice.rows),
        "has_runs": any(task.run > 1 for task in row_slice.rows),
    }


def _held_tasks(tasks: QuerySet[Workload]) -> HeldTasks | None:
    """Return the tasks that wait for earlier tasks, or None if there are too few to fold into one row."""
    held = tasks.filter(held=True).order_by()
    values = held.aggregate(count=Count("pk"), first=Min("array_index"), last=Max("array_index"))
    return HeldTasks(**values) if values["count"] > MAX_HELD_ROWS else None


def _describe_listed_tasks(row_slice: PageSlice[Workload], total: int) -> str:
    """Return a phrase such as "Tasks 0 to 49, 50 of 73"."""
    indexes = [task.array_index or 0 for task in row_slice.rows]
    if not indexes or row_slice.sort.removeprefix("-") != "index":
        return f"{len(indexes):,} of {format_count(total, 'task')}"
    return f"Tasks {min(indexes)} to {max(indexes)}, {len(indexes):,} of {total:,}"


def _idle_reason(tasks: QuerySet[Workload], progress: ArrayProgress) -> IdleReason | None:
    counts = progress.counts
    if counts.starting + counts.running + counts.stopping:
        return None
    queued = tasks.filter(phase__in=("reserved", "pending"), held=False)
    first = queued.order_by("array_index").first()
    if first is not None:
        count = format_count(counts.pending + counts.reserved, "task")
        is_schedulable = first.reason != UNSCHEDULABLE
        state = "queued" if is_schedulable else "can never start"
        return IdleReason(f"{count} {state}.", first, _next_start(queued))
    if counts.suspended:
        return IdleReason(f"{format_count(counts.suspended, 'task')} suspended. Resume them to continue.")
    return IdleReason("The scheduler has not released the next tasks yet.") if counts.held else None


def _next_start(queued: QuerySet[Workload]) -> datetime | None:
    expected = queued.order_by().annotate(expected=KT("explanation__expected_start"))
    starts: str | None = expected.aggregate(Min("expected"))["expected__min"]
    return parse_datetime(starts or "")


def _expected_end(idle: IdleReason | None, estimate: RuntimeEstimate | None) -> datetime | None:
    if estimate is None or estimate.remaining is None or (idle is not None and idle.starts is None):
        return None
    now = timezone.now()
    starts = now if idle is None or idle.starts is None else max(idle.starts, now)
    return starts + timedelta(seconds=estimate.remaining)


def _as_csv(
    request: Request, array: WorkloadArray, tasks: QuerySet[Workload], parameters: Parameters
) -> StreamingHttpResponse:
    """Return all tasks as CSV, with each task's parameters in the last columns."""
    names = list(dict.fromkeys(name for values in parameters.values() for name in values))
    lines = (
        [getattr(task, column) for column in CSV_COLUMNS.values()]
        + [parameters.get(task.array_index or 0, {}).get(name, "") for name in names]
        for task in tasks.order_by("array_index").iterator(chunk_size=500)
    )
    return csv_response(request, array.name, [*CSV_COLUMNS, *names], lines)


def _task_squares(
    array: WorkloadArray,
    tasks: QuerySet[Workload],
    parameters: Parameters,
    matching: Collection[int] | None,
    phases: Collection[str],
) -> list[TaskSquare]:
    """Return a square for each task, in task index order.

    `matching` contains the indexes that match the filters. It is None if no filters are set.
    """
    squares = []
    rows = tasks.order_by("array_index").values_list("pk", "name", "array_index", "phase", "held")
    for pk, name, index, phase, held in rows:
        values = "".join(f", {key}={value}" for key, value in parameters.get(index or 0, {}).items())
        state = "waiting for earlier tasks" if held else phase
        kind = "held" if held else "running" if phase in STATES["running"][1] else phase
        kind = "pending" if kind == Phase.RESERVED else kind
        is_filtered_out = phase not in phases or (matching is not None and index not in matching)
        squares.append(TaskSquare(pk, index or 0, kind, f"{name}: {state}{values}", is_filtered_out))
    return squares


def _group_by_ten(squares: Sequence[TaskSquare]) -> list[tuple[int, list[TaskSquare]]]:
    """Group the squares by task index: 0 to 9, 10 to 19, and so on.

    Each group has the index of its first task.
    """
    groups = groupby(squares, lambda square: square.index // 10)
    return [(group[0].index, group) for group in (list(each) for _, each in groups)]


def _state_tabs(counts: TaskCounts) -> list[tuple[str, str, int]]:
    """Return each tab's state, title and number of tasks.

    The page shows the tab "ended" only if a link has selected it.
    """
    by_phase = {**asdict(counts), "pending": counts.pending + counts.held}
    tabs = [
        (word, title, sum(by_phase.get(phase, 0) for phase in phases))
        for word, (title, phases) in STATES.items()
    ]
    live, pending, *others, everything = tabs
    first = [pending] if 0 < live[2] == pending[2] else [live, pending]
    by_outcome = [
        (str(Phase.COMPLETED), "Completed", counts.completed),
        (str(Phase.FAILED), "Failed", counts.failed),
        (str(Phase.CANCELLED), "Cancelled", counts.cancelled),
    ]
    return [*first, *others, *by_outcome, everything]


def _possible_changes(request: Request, array: WorkloadArray, counts: TaskCounts) -> list[str]:
    if not may(request.actor, Action.OPERATE, array):
        return []
    if array.state == ArrayState.ACTIVE:
        offered = bulk_actions(request.actor, array, counts)
        return [action for action in ("retry", "suspend", "resume", "cancel") if action in offered]
    return ["retry" if counts.failed else "run again", "delete"]
