"""The workload list and its actions."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.server.api.transport.streaming import csv_file
from berth.server.web.lists.paging import ordered, slice_of
from berth.server.web.pages import Request, done, page, signed_in
from projects.access import Action, require, visible_pools
from projects.idle_gpus import idle_since
from projects.models import SavedView, Workload, WorkloadKind
from projects.selectors import find_workload, projects
from projects.services import workloads as service
from projects.web.workloads.columns import COLUMNS, USUAL, chosen, in_file
from projects.web.workloads.filters import SORTS, counts, filters_of, listed


@dataclass(frozen=True, slots=True)
class Step:
    """An action on a workload, with its confirmation texts."""

    title: str
    warning: str
    past: str
    do: Callable[..., object]
    dismiss: str
    danger: bool = False

    @property
    def label(self) -> str:
        return f"{self.title} workload"


STEPS: Mapping[str, Step] = {
    "cancel": Step(
        "Cancel",
        "Its pods get the grace period to stop. A cancelled workload cannot be resumed.",
        "is being cancelled",
        service.cancel,
        "Keep running",
        danger=True,
    ),
    "suspend": Step(
        "Suspend",
        "Its pods get the grace period to stop. It keeps its submission time and stays suspended until you"
        " resume it.",
        "is being suspended",
        service.suspend,
        "Keep running",
    ),
    "resume": Step(
        "Resume",
        "It returns to the queue of its project.",
        "is queued again",
        service.resume,
        "Keep suspended",
    ),
    "delete": Step(
        "Delete",
        "The workload and its logs are deleted. Its events and evictions are kept in the history.",
        "was deleted",
        service.delete,
        "Keep workload",
        danger=True,
    ),
}


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    filters = filters_of(request.GET)
    rows = listed(request.acting, filters)
    if request.GET.get("format") == "csv":
        return _as_csv(request, rows)
    part = slice_of(
        rows,
        SORTS,
        sort=request.GET.get("sort", ""),
        default="-submitted",
        cursor=request.GET.get("cursor", ""),
    )
    idle = idle_since((row.pk for row in part.rows), timezone.now())
    for row in part.rows:
        cast("Any", row).idle_since = idle.get(row.pk)
    columns = chosen(request.GET)
    context = {
        "filters": filters,
        "columns": [(key, COLUMNS[key]) for key in columns],
        "all_columns": [(key, column, key in columns) for key, column in COLUMNS.items()],
        "chosen": ",".join(columns) if columns != USUAL else "",
        "views": SavedView.objects.filter(user=request.acting.user),
        "here": _plain_query(request),
        "slice": part,
        "sort": part.sort,
        "states": counts(request.acting, filters),
        "projects": projects(request.acting),
        "pools": visible_pools(request.acting).order_by("name"),
        "kinds": WorkloadKind.choices,
    }
    return page(request, "projects/workloads/list.html", context, inner="projects/workloads/rows.html")


def _as_csv(request: Request, rows: QuerySet[Workload]) -> StreamingHttpResponse:
    """Return all rows as CSV, in the order and with the columns of the list."""
    sort, columns = request.GET.get("sort", ""), in_file(chosen(request.GET))
    every = ordered(rows, SORTS, sort if sort.removeprefix("-") in SORTS else "-submitted")
    lines = ([tell(row) for _, tell in columns] for row in every.iterator(chunk_size=500))
    return csv_file(request, "workloads", [head for head, _ in columns], lines)


def _plain_query(request: Request) -> str:
    """Return the query that a saved view stores, to mark the open view."""
    query = request.GET.copy()
    query.pop("cursor", None)
    return query.urlencode()


@signed_in
@require_http_methods(["GET", "POST"])
def act(request: Request, workload_id: uuid.UUID, step: str) -> HttpResponse:
    """Show the confirmation (GET), or take the action (POST)."""
    workload = find_workload(request.acting, workload_id)
    require(request.acting, Action.OPERATE, workload)
    action = STEPS[step]
    here = reverse("workload", args=[workload.pk])
    if request.method == "POST":
        action.do(acting=request.acting, workload=workload)
        deleted = step == "delete"
        to = reverse("workloads") if deleted else here
        return done(request, f"{workload.name} {action.past}.", to=to, leave=deleted)
    context = {"workload": workload, "step": action, "back": here, "post_to": request.path}
    return page(
        request, "projects/workloads/action.html", context, inner="projects/workloads/action_form.html"
    )


def steps_for(workload: Workload) -> list[str]:
    """Return the actions that are possible in the workload's phase."""
    if workload.phase in ("completed", "failed", "cancelled"):
        return ["delete"]
    if workload.phase == "suspended" or workload.next_phase == "suspended":
        return ["resume", "cancel"]
    return ["suspend", "cancel"]
