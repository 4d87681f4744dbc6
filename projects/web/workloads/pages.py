"""Workload list and actions on workloads."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.server.api.transport.streaming import csv_response
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.paging import load_slice, sort_rows
from berth.server.web.lists.tables import sort_choices
from berth.server.web.pages import Request, page, signed_in, success_response
from projects.access import Action, require, visible_pools
from projects.actor import Actor
from projects.models import SavedView, Workload, WorkloadKind
from projects.selectors import find_workload, projects
from projects.services import workloads as service
from projects.services.arrays import failure_causes, failures_by_array
from projects.web.arrays.progress import load_progress
from projects.web.arrays.queued_tasks import load_queued_tasks
from projects.web.workloads.actions import BULK_ACTION_TITLES, set_bulk_actions
from projects.web.workloads.activity import load_activity
from projects.web.workloads.failed_pods import load_log_urls
from projects.web.workloads.listing.columns import (
    COLUMNS,
    DEFAULT_COLUMNS_WITH_RUNTIME,
    chosen_columns,
    csv_columns,
    default_columns,
    load_array_costs,
    load_costs,
    load_runtimes,
)
from projects.web.workloads.listing.engine_rows import (
    exclude_folded_engines,
    insert_inference_engine_rows,
)
from projects.web.workloads.listing.filters import (
    PERIODS,
    WorkloadFilters,
    count_by_state,
    failed_since_condition,
    filter_workloads,
    one_row_per_array,
    parse_filters,
    unknown_name_problems,
)
from projects.web.workloads.listing.no_matches import describe_no_matches
from projects.web.workloads.listing.replicas import load_replicas
from projects.web.workloads.listing.reservations import load_reservations
from projects.web.workloads.listing.sorting import (
    DEFAULT_SORT,
    SORT_CHOICES,
    SORTS,
    annotate_values,
    requested_sort,
)
from projects.web.workloads.listing.utilization import (
    attach_utilization,
    common_last_measurement,
    was_measured,
)
from projects.web.workloads.request_labels import NO_GPU, set_request_labels
from projects.web.workloads.stops import stop_cost

CSV_CHUNK = 500
FAILED_PERIOD, FAILED_MAX = "24h", 3  # limits on the recent failures named above the live workloads


@dataclass(frozen=True, slots=True)
class WorkloadAction:
    """Action on a workload, with the text of its confirmation page."""

    title: str
    warning: str
    result_text: str
    run: Callable[..., object]
    dismiss: str
    danger: bool = False

    @property
    def label(self) -> str:
        return f"{self.title} workload"


ACTIONS: Mapping[str, WorkloadAction] = {
    "cancel": WorkloadAction(
        "Cancel",
        "A cancelled workload cannot be resumed.",
        "is being cancelled",
        service.cancel,
        "Keep running",
        danger=True,
    ),
    "suspend": WorkloadAction(
        "Suspend",
        "The workload keeps its submission time and stays suspended until you resume it.",
        "is being suspended",
        service.suspend,
        "Keep running",
    ),
    "resume": WorkloadAction(
        "Resume",
        "The workload returns to its project's queue.",
        "is queued again",
        service.resume,
        "Keep suspended",
    ),
    "delete": WorkloadAction(
        "Delete",
        "The workload and its logs are deleted. The events and evictions are kept in the history.",
        "was deleted",
        service.delete,
        "Keep workload",
        danger=True,
    ),
}

# Pending workloads have no pods to stop, so these actions show a different warning.
PENDING_ACTIONS: Mapping[str, WorkloadAction] = {
    "cancel": replace(
        ACTIONS["cancel"],
        warning="The workload leaves the queue. A cancelled workload cannot be resumed.",
        dismiss="Keep workload",
    ),
    "suspend": replace(
        ACTIONS["suspend"],
        warning="The workload leaves the queue. It keeps its submission time and stays suspended until you "
        "resume it.",
        dismiss="Keep in queue",
    ),
}


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    filters = parse_filters(request.GET)
    if request.GET.get("format") == "csv":
        return _as_csv(request, filter_workloads(request.actor, filters, each_task=True))
    rows = filter_workloads(request.actor, filters)
    sort, chosen = requested_sort(request.GET.get("sort", "")), chosen_columns(request.GET)
    unfolded = exclude_folded_engines(one_row_per_array(rows))
    row_slice = load_slice(
        annotate_values(unfolded, sort, chosen).select_related("array"),
        SORTS,
        sort=sort,
        default=DEFAULT_SORT,
        cursor=request.GET.get("cursor", ""),
    )
    listed = insert_inference_engine_rows(row_slice.rows, rows, request.GET.get("open", ""))
    row_slice = replace(row_slice, rows=listed)
    progress = load_progress([row.array for row in row_slice.rows if row.array is not None])
    failed_arrays = [pk for pk, each in progress.items() if each.counts.failed]
    failures = failures_by_array(failed_arrays) if failed_arrays else {}
    queued_tasks = load_queued_tasks([pk for pk, each in progress.items() if each.queued])
    replicas = load_replicas(row_slice.rows)
    usual = default_columns(row_slice.rows)
    columns = chosen or usual
    load_costs(row_slice.rows, columns)
    load_array_costs(row_slice.rows, columns)
    load_runtimes(row_slice.rows)
    if "gpus" in columns:
        set_request_labels(row_slice.rows)
    attach_utilization(row_slice.rows, columns)
    shows_status = "status" in columns
    activity = load_activity(row_slice.rows) if shows_status or "state" in columns else {}
    reservations = load_reservations(row_slice.rows) if shows_status else {}
    logs = load_log_urls(row_slice.rows) if shows_status else {}
    for row in row_slice.rows:
        cast("Any", row).replicas = replicas.get(row.pk)
        cast("Any", row).progress = row.array_id and progress[row.array_id]
        cast("Any", row).queued_tasks = queued_tasks.get(row.array_id) if row.array_id else None
        cast("Any", row).failures = failure_causes(failures.get(row.array_id, ())) if row.array_id else ""
        cast("Any", row).activity = activity.get(row.pk, "")
        cast("Any", row).reservation = reservations.get(row.pk)
        cast("Any", row).failure_log = logs.get(row.pk, "")
        counts = cast("Any", row).progress.counts if row.array else None
        set_bulk_actions(request.actor, row, row.array or row, counts)
    with_values = set(columns)
    if not any(was_measured(row) for row in row_slice.rows):
        with_values.discard("utilization")
    if not any(row.gpu_milli_min or _has_request_labels(row) for row in row_slice.rows):
        with_values.discard("gpus")
    states = count_by_state(request.actor, filters)
    has_any = any(each.count for each in states)
    context = {
        "filters": filters,
        "submitter": filters.user or (request.user.get_username() if filters.mine else ""),
        "unknown": "" if row_slice.rows else describe_unknown(*unknown_name_problems(request.actor, filters)),
        **describe_no_matches(filters, states),
        "empty_title": "No live workloads" if has_any else "No workloads yet",
        "columns": [(key, COLUMNS[key]) for key in columns if key in with_values],
        "shows_state": "state" in columns,
        "is_compact": request.GET.get("compact") == "1",
        "all_columns": [(key, column, key in columns) for key, column in COLUMNS.items()],
        "usual_columns": ",".join(usual),
        "chosen": ",".join(columns) if columns != usual else "",
        "views": SavedView.objects.filter(user=request.actor.user),
        "here": _query_for_saved_view(request),
        "slice": row_slice,
        "sort": row_slice.sort,
        "states": states,
        "failed": _recent_failures(request.actor, filters) if filters.state == "live" else [],
        "failed_period": FAILED_PERIOD,
        # Narrow windows show the time of submission only if the user has chosen columns or a sort order.
        "has_submission_times": columns != usual or bool(request.GET.get("sort")),
        "sort_choices": sort_choices(SORT_CHOICES, "" if row_slice.sort == DEFAULT_SORT else row_slice.sort),
        "projects": projects(request.actor),
        "pools": visible_pools(request.actor).order_by("name"),
        "kinds": WorkloadKind.choices,
        "periods": PERIODS,
        "bulk_actions": BULK_ACTION_TITLES,
        "unmeasured_since": common_last_measurement(row_slice.rows),
    }
    return page(request, "projects/workloads/list.html", context, inner="projects/workloads/rows.html")


def _recent_failures(actor: Actor, filters: WorkloadFilters) -> list[Workload]:
    """Return up to FAILED_MAX + 1 workloads and arrays that failed in the last day and match the other
    filters, latest first.
    """
    since = timezone.now() - PERIODS[FAILED_PERIOD][1]
    rows = filter_workloads(actor, filters, any_state=True).filter(failed_since_condition(since))
    end = Coalesce("array__ended_at", "ended_at")
    latest = one_row_per_array(rows).select_related("array").order_by(end.desc(), "pk")
    return list(latest[: FAILED_MAX + 1])


def _has_request_labels(row: Any) -> bool:
    return bool(getattr(row, "cpu_label", "") or getattr(row, "gpu_label", NO_GPU) != NO_GPU)


def _as_csv(request: Request, rows: QuerySet[Workload]) -> StreamingHttpResponse:
    """Return all rows as CSV, in the order and with the columns of the list."""
    keys = chosen_columns(request.GET) or DEFAULT_COLUMNS_WITH_RUNTIME
    sort, columns = requested_sort(request.GET.get("sort", "")), csv_columns(keys)
    sorted_rows = sort_rows(annotate_values(rows, sort, keys, each_task=True), SORTS, sort)
    remaining = sorted_rows.iterator(chunk_size=CSV_CHUNK)
    chunks: Iterator[list[Workload]] = iter(lambda: [*islice(remaining, CSV_CHUNK)], [])
    lines = (
        [get_value(row) for _, get_value in columns]
        for chunk in chunks
        for row in attach_utilization(load_costs(chunk, keys), keys)
    )
    return csv_response(request, "workloads", [head for head, _ in columns], lines)


def _query_for_saved_view(request: Request) -> str:
    """Return the query in the format of saved views, so that the page can mark the current view."""
    query = request.GET.copy()
    query.pop("cursor", None)
    return query.urlencode()


@signed_in
@require_http_methods(["GET", "POST"])
def apply_action(request: Request, workload_id: uuid.UUID, action_name: str) -> HttpResponse:
    """Ask for confirmation (GET) or perform the action (POST)."""
    workload = find_workload(request.actor, workload_id)
    require(request.actor, Action.OPERATE, workload)
    action = action_for_phase(workload, action_name)
    workload_url = reverse("workload", args=[workload.pk])
    if request.method == "POST":
        action.run(actor=request.actor, workload=workload)
        deleted = action_name == "delete"
        to = reverse("workloads") if deleted else workload_url
        return success_response(request, f"{workload.name} {action.result_text}.", to=to, leave=deleted)
    context = {
        "workload": workload,
        "action": action,
        "cost": stop_cost(action_name, [workload]),
        "back": workload_url,
        "post_to": request.path,
    }
    return page(
        request, "projects/workloads/action.html", context, inner="projects/workloads/action_form.html"
    )


def action_for_phase(workload: Workload, action_name: str) -> WorkloadAction:
    """Return the action, with its text adapted to the workload's phase."""
    pending = PENDING_ACTIONS if workload.phase == "pending" else {}
    return pending.get(action_name, ACTIONS[action_name])
