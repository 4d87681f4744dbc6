"""Usage page with cost and budgets."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET
from rest_framework.request import Request as ApiRequest

from berth.server.web.charts.bars import Bar, stacked_bar
from berth.server.web.charts.columns import ColumnChart, stacked_columns
from berth.server.web.charts.hues import OTHER_PROJECTS_HUE, project_hue
from berth.server.web.charts.time_axis import TimeLabel, column_labels
from berth.server.web.lists.filters import describe_unknown
from berth.server.web.lists.paging import load_slice
from berth.server.web.numbers import hours
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import user_time_zone
from projects.access import visible_pools
from projects.actor import Actor
from projects.models import Budget, Department
from projects.models.tenants import Tenant
from projects.selectors import budgets, departments, projects
from projects.web.quotas.budgets import budget_permission_check, editable_budget_owners
from scheduler.api.usage import stream_csv
from scheduler.models import UsageHour
from scheduler.reports.usage.budgets import BudgetStatus, budget_statuses
from scheduler.reports.usage.gpu_use import MeasuredGpuHours, gpu_utilization_by_name, total_gpu_hours
from scheduler.reports.usage.known_names import unknown_name_problems
from scheduler.reports.usage.report import (
    ReportStep,
    UsageDimension,
    UsageRow,
    floor_to_hour,
    sum_rows,
    usage_report,
)
from scheduler.web.usage.query import (
    DEFAULT_DIMENSION,
    DEFAULT_SPAN,
    SPANS,
    UsageQuery,
    parse_usage_query,
)

MAX_NAMED_LAYERS = 7
OTHERS = "others"
BUDGETS_PER_PAGE = 25
MAX_ROWS = 100  # maximum number of rows on the page; the CSV file contains all rows
LABEL_FORMATS = {
    ReportStep.HOUR: "%-d %b, %H:00",
    ReportStep.DAY: "%-d %b",
    ReportStep.WEEK: "week of %-d %b",
    ReportStep.MONTH: "%b %Y",
}


@dataclass(frozen=True, slots=True)
class UsageTableRow:
    """Table row with the usage of one department, project, user or pool."""

    name: str
    hue: str
    used: UsageRow
    bar: Bar
    use: MeasuredGpuHours | None  # measured GPU hours; None if nothing was measured
    workloads_url: str

    @property
    def is_partly_measured(self) -> bool:
        """Whether utilization was measured for less than 90% of the GPU-hours."""
        return self.use is not None and self.use.measured < 0.9 * self.used.gpu_hours


@dataclass(frozen=True, slots=True)
class UsageChart:
    """Stacked column chart with the data for its tooltips. Incomplete periods have a lighter colour."""

    columns: ColumnChart
    layers: list[tuple[str, str]]  # hue and name of each layer
    readouts: str
    periods: str  # labels of the columns, such as "27 Nov|28 Nov"
    has_partial: bool
    labels: list[TimeLabel]

    @property
    def names(self) -> str:
        return "|".join(name for _, name in self.layers)


@dataclass(frozen=True, slots=True)
class ChartPeriod:
    label: str
    used: UsageRow


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    now = timezone.now()
    question = parse_usage_query(request.GET, now, user_time_zone(request))
    rows = question.matching_rows(usage_report(request.actor, question.request, now))
    if request.GET.get("format") == "csv":
        return stream_csv(ApiRequest(request), question.request, rows)
    sort = request.GET.get("sort", "-gpu_hours")
    uses = gpu_utilization_by_name(request.actor, question.request, question.by)
    hues = _project_hues(request.actor) if question.by is UsageDimension.PROJECT else None
    lines = _usage_table_rows(rows, question.by, uses, hues)
    shown = load_slice(
        budgets(request.actor), {"made": "pk"}, sort="made", default="made",
        cursor=request.GET.get("cursor", ""), size=BUDGETS_PER_PAGE,
    )  # fmt: skip
    sums, before = sum_rows(rows), _previous_total(request.actor, question, now)
    context = {
        "question": question,
        "gpu_hours_change": _change_phrase(sums.gpu_hours, before.gpu_hours),
        "cost_change": _change_phrase(float(sums.known_cost), float(before.known_cost)),
        "unknown": "" if rows else describe_unknown(*unknown_name_problems(request.actor, question.only)),
        "spans": SPANS,
        "default_span": DEFAULT_SPAN,
        "default_dimension": DEFAULT_DIMENSION,
        "dimensions": list(UsageDimension),
        "steps": list(ReportStep),
        "total": sums,
        "lines": _sort_table_rows(lines, sort)[:MAX_ROWS],
        "names": len(lines),
        "is_new": not lines and not UsageHour.objects.exists(),
        "sort": sort,
        "chart": _build_usage_chart(rows, lines, question),
        "use": total_gpu_hours({line.name: line.use for line in lines if line.use is not None}),
        "pieces": _chart_periods(rows, question),
        "slice": shown,
        "budgets": _budget_bars(shown.rows, now, budget_permission_check(request.actor)),
        "may_budget": any(True for _ in editable_budget_owners(request.actor)),
        **_load_filter_choices(request.actor),
    }
    return page(request, "scheduler/usage/page.html", context, inner="scheduler/usage/rows.html")


def _previous_total(actor: Actor, question: UsageQuery, now: datetime) -> UsageRow:
    since, until = question.request.since, question.request.until
    previous = replace(question.request, since=since - (until - since), until=since, step=None)
    return sum_rows(question.matching_rows(usage_report(actor, previous, now)))


def _change_phrase(amount: float, before: float) -> str:
    """Return a phrase such as "5% more than in the previous period", or "" if the previous amount is 0."""
    if not before:
        return ""
    percent = round(100 * (amount - before) / before)
    direction = "more" if percent > 0 else "less"
    return (
        f"{abs(percent):,}% {direction} than in the previous period"
        if percent
        else "same as in the previous period"
    )


def _project_hues(actor: Actor) -> dict[str, str]:
    return {name: project_hue(pk) for pk, name in projects(actor).order_by().values_list("pk", "name")}


def _usage_table_rows(
    rows: Iterable[UsageRow],
    by: UsageDimension,
    uses: Mapping[str, MeasuredGpuHours],
    project_hues: Mapping[str, str] | None,
) -> list[UsageTableRow]:
    """Return the report's table rows, largest first."""
    names: dict[str, list[UsageRow]] = {}
    for row in rows:
        names.setdefault(row.names[by], []).append(row)
    sums = [(sum_rows(used), name) for name, used in names.items()]
    sums.sort(key=lambda pair: (-pair[0].gpu_hours, pair[1]))
    most = max([used.gpu_hours for used, _ in sums], default=0.0)
    rows_ = []
    for place, (used, name) in enumerate(sums):
        own = f"hue-{place}" if project_hues is None else project_hues.get(name, OTHER_PROJECTS_HUE)
        hue = own if place < MAX_NAMED_LAYERS or project_hues is not None else OTHER_PROJECTS_HUE
        label = f"{hours(used.gpu_hours)} GPU-hours"
        gpu_hours_bar = stacked_bar([(round(used.gpu_hours * 1000), hue)], max(1, round(most * 1000)), label)
        url = _workloads_url(by, name)
        rows_.append(UsageTableRow(name, hue, used, gpu_hours_bar, uses.get(name), url))
    return rows_


def _workloads_url(by: UsageDimension, name: str) -> str:
    """Return the URL of the row's workloads, or "" for departments and for Berth itself."""
    keys = {UsageDimension.PROJECT: "project", UsageDimension.POOL: "pool", UsageDimension.USER: "search"}
    if not name or by not in keys:
        return ""
    return f"{reverse('workloads')}?{urlencode({keys[by]: name, 'state': 'all'})}"


def _sort_table_rows(lines: list[UsageTableRow], sort: str) -> list[UsageTableRow]:
    keys: Mapping[str, Any] = {
        "name": lambda line: line.name,
        "gpu_hours": lambda line: line.used.gpu_hours,
        "cpu_hours": lambda line: line.used.cpu_hours,
        "memory": lambda line: line.used.memory_gib_hours,
        "cost": lambda line: line.used.known_cost,
        "use": lambda line: (line.use and line.use.percent) or 0.0,
        "idle": lambda line: line.use.idle if line.use else 0.0,
    }
    key = keys.get(sort.removeprefix("-"), keys["gpu_hours"])
    return sorted(lines, key=key, reverse=sort.startswith("-"))


def _build_usage_chart(
    rows: Sequence[UsageRow], lines: Sequence[UsageTableRow], question: UsageQuery
) -> UsageChart | None:
    """Return a chart with one layer for each of the largest consumers and one for all others.

    Return None if the period is empty.
    """
    starts = _step_starts(question)
    if not starts:
        return None
    ends = [*starts[1:], _next_start(starts[-1], question.step)]
    begin, until = floor_to_hour(question.request.since), question.request.until
    partial = [at < begin or end > until for at, end in zip(starts, ends, strict=True)]
    amounts: dict[tuple[str, datetime], float] = {}
    layer_names = {line.name: line.name or "Berth" for line in lines[:MAX_NAMED_LAYERS]}
    for row in rows:
        if row.at is not None:
            key = layer_names.get(row.names[question.by], OTHERS), row.at
            amounts[key] = amounts.get(key, 0.0) + row.gpu_hours
    named = [(line.hue, layer_names[line.name]) for line in lines[:MAX_NAMED_LAYERS]]
    named += [(OTHER_PROJECTS_HUE, OTHERS)] if len(lines) > MAX_NAMED_LAYERS else []
    layers = [
        (
            hue,
            [
                (amounts.get((name, at), 0.0), "partial" * part)
                for at, part in zip(starts, partial, strict=True)
            ],
        )
        for hue, name in named
    ]
    readouts = [
        [round(at.timestamp()), *(round(amounts.get((name, at), 0.0), 1) for _, name in named)]
        for at in starts
    ]
    return UsageChart(
        stacked_columns(layers),
        named,
        json.dumps(readouts, separators=(",", ":")),
        "|".join(_period_label(at, question) for at in starts),
        any(partial),
        column_labels(starts, question.request.time_zone),
    )


def _chart_periods(rows: Sequence[UsageRow], question: UsageQuery) -> list[ChartPeriod]:
    at: dict[datetime, list[UsageRow]] = {start: [] for start in _step_starts(question)}
    for row in rows:
        if row.at is not None:
            at.setdefault(row.at, []).append(row)
    return [
        ChartPeriod(_period_label(start, question), sum_rows(used))
        for start, used in sorted(at.items(), reverse=True)
    ]


def _step_starts(question: UsageQuery) -> list[datetime]:
    zone, rows_ = question.request.time_zone, []
    at = question.request.since.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    if question.step is not ReportStep.HOUR:
        at = at.replace(hour=0)
    if question.step is ReportStep.WEEK:
        at -= timedelta(days=at.weekday())
    if question.step is ReportStep.MONTH:
        at = at.replace(day=1)
    while at < question.request.until:
        rows_.append(at)
        at = _next_start(at, question.step)
    return rows_


def _next_start(at: datetime, step: ReportStep) -> datetime:
    """Return the start of the next step, taking into account that days may have 23 or 25 hours."""
    if step is ReportStep.HOUR:
        return (at.astimezone(UTC) + timedelta(hours=1)).astimezone(at.tzinfo)
    if step is ReportStep.MONTH:
        return (at + timedelta(days=32)).replace(day=1)
    return at + timedelta(days=7 if step is ReportStep.WEEK else 1)


def _period_label(at: datetime, question: UsageQuery) -> str:
    return at.astimezone(question.request.time_zone).strftime(LABEL_FORMATS[question.step])


@dataclass(frozen=True, slots=True)
class BudgetRow:
    status: BudgetStatus
    kind: str
    bar: Bar
    tone: str
    may_set: bool


def _budget_bars(rows: Sequence[Budget], now: datetime, may_set: Callable[[Tenant], bool]) -> list[BudgetRow]:
    rows_ = []
    for status in budget_statuses(rows, now):
        owner = status.budget.owner
        whole = max(status.budget.gpu_hours, status.used, status.forecast, 1)
        over = status.percent >= 100
        budget_bar = stacked_bar(
            [
                (round(1000 * status.used), "over" if over else "used"),
                (round(1000 * max(0.0, status.forecast - status.used)), "requested"),
            ],
            round(1000 * whole),
            f"{status.percent:.0f}% used, {status.forecast_percent:.0f}% forecast for the month",
        )
        mark = Bar(
            budget_bar.parts, quota=round(1000 * status.budget.gpu_hours / whole), label=budget_bar.label
        )
        tone = "bad" if over else "warn" if status.forecast_percent > 100 else "good"
        kind = "departments" if isinstance(owner, Department) else "projects"
        rows_.append(BudgetRow(status, kind, mark, tone, may_set(owner)))
    return rows_


def _load_filter_choices(actor: Actor) -> dict[str, Any]:
    return {
        "departments": departments(actor),
        "projects": projects(actor).select_related(None),
        "pools": visible_pools(actor).order_by("name"),
    }
