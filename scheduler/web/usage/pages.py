"""Page of usage, cost and budgets."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from rest_framework.request import Request as ApiRequest

from berth.server.web.charts.bars import Bar, stacked
from berth.server.web.charts.columns import Columns, columns
from berth.server.web.lists.paging import slice_of
from berth.server.web.pages import Request, page, signed_in
from berth.server.web.zones import zone_of
from projects.access import visible_pools
from projects.acting import Acting
from projects.models import Budget, Department
from projects.selectors import budgets, departments, projects
from projects.web.quotas.budgets import Owner, budget_setter, budgetable
from scheduler.api.usage import as_csv
from scheduler.reports.usage.budgets import Standing, standings
from scheduler.reports.usage.report import Dimension, Step, UsageRow, report, total
from scheduler.web.usage.query import SPANS, Question, question_of

MOST_NAMED = 8
MOST_BUDGETS = 25
MOST_LINES = 100  # rows on the page; the CSV file contains all rows
SHOWN = {Step.HOUR: "%d %b %H:00", Step.DAY: "%d %b", Step.WEEK: "week of %d %b", Step.MONTH: "%b %Y"}


@dataclass(frozen=True, slots=True)
class Line:
    """Total usage of one name."""

    name: str
    hue: str
    used: UsageRow
    bar: Bar


@dataclass(frozen=True, slots=True)
class Piece:
    label: str
    used: UsageRow


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    now = timezone.now()
    question = question_of(request.GET, now, zone_of(request))
    rows = question.chosen_of(report(request.acting, question.request, now))
    if request.GET.get("format") == "csv":
        return as_csv(ApiRequest(request), question.request, rows)
    sort = request.GET.get("sort", "-gpu_hours")
    lines = _lines(rows, question.by)
    shown = slice_of(
        budgets(request.acting), {"made": "pk"}, sort="made", default="made",
        cursor=request.GET.get("cursor", ""), size=MOST_BUDGETS,
    )  # fmt: skip
    context = {
        "question": question,
        "spans": SPANS,
        "dimensions": list(Dimension),
        "steps": list(Step),
        "total": total(rows),
        "lines": _sort_lines(lines, sort)[:MOST_LINES],
        "names": len(lines),
        "sort": sort,
        "chart": _chart(rows, lines, question),
        "labels": _labels(question),
        "pieces": _pieces(rows, question),
        "slice": shown,
        "budgets": _budget_bars(shown.rows, now, budget_setter(request.acting)),
        "may_budget": any(True for _ in budgetable(request.acting)),
        **_choices(request.acting),
    }
    return page(request, "scheduler/usage/page.html", context, inner="scheduler/usage/rows.html")


def _lines(rows: Iterable[UsageRow], by: Dimension) -> list[Line]:
    names: dict[str, list[UsageRow]] = {}
    for row in rows:
        names.setdefault(row.names[by], []).append(row)
    sums = [(total(each), name) for name, each in names.items()]
    sums.sort(key=lambda pair: (-pair[0].gpu_hours, pair[1]))
    most = max([used.gpu_hours for used, _ in sums], default=0.0)
    rows_ = []
    for place, (used, name) in enumerate(sums):
        hue = f"hue-{place}" if place < MOST_NAMED else "hue-other"
        label = f"{used.gpu_hours:,.1f} GPU-hours"
        drawn = stacked([(round(used.gpu_hours * 1000), hue)], max(1, round(most * 1000)), label)
        rows_.append(Line(name, hue, used, drawn))
    return rows_


def _sort_lines(lines: list[Line], sort: str) -> list[Line]:
    keys: Mapping[str, Any] = {
        "name": lambda line: line.name,
        "gpu_hours": lambda line: line.used.gpu_hours,
        "cpu_hours": lambda line: line.used.cpu_hours,
        "memory": lambda line: line.used.memory_gib_hours,
        "cost": lambda line: line.used.cost or Decimal(0),
    }
    key = keys.get(sort.removeprefix("-"), keys["gpu_hours"])
    return sorted(lines, key=key, reverse=sort.startswith("-"))


def _chart(rows: Sequence[UsageRow], lines: Sequence[Line], question: Question) -> Columns:
    """Return a chart with a layer for each of the largest names, and one layer for all others."""
    starts = _starts(question)
    amounts: dict[tuple[str, datetime], float] = {}
    hues = {line.name: line.hue for line in lines}
    for row in rows:
        if row.at is not None:
            key = hues[row.names[question.by]], row.at
            amounts[key] = amounts.get(key, 0.0) + row.gpu_hours
    called = {line.hue: line.name or "Berth" for line in lines[:MOST_NAMED]}
    layers = []
    for hue in dict.fromkeys(line.hue for line in lines):
        values = []
        for at in starts:
            amount = amounts.get((hue, at), 0.0)
            where = f"{called.get(hue, 'others')}, {_label(at, question)}"
            values.append((amount, f"{where}: {amount:,.1f} GPU-hours"))
        layers.append((hue, values))
    return columns(layers)


def _pieces(rows: Sequence[UsageRow], question: Question) -> list[Piece]:
    """Return the chart's data, the latest step first."""
    at: dict[datetime, list[UsageRow]] = {start: [] for start in _starts(question)}
    for row in rows:
        if row.at is not None:
            at.setdefault(row.at, []).append(row)
    return [Piece(_label(start, question), total(each)) for start, each in sorted(at.items(), reverse=True)]


def _labels(question: Question) -> tuple[str, str]:
    starts = _starts(question)
    return (_label(starts[0], question), _label(starts[-1], question)) if starts else ("", "")


def _starts(question: Question) -> list[datetime]:
    """Return the start of each step in the reader's time zone."""
    zone, rows_ = question.request.time_zone, []
    at = question.request.since.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    if question.step is not Step.HOUR:
        at = at.replace(hour=0)
    if question.step is Step.WEEK:
        at -= timedelta(days=at.weekday())
    if question.step is Step.MONTH:
        at = at.replace(day=1)
    while at < question.request.until:
        rows_.append(at)
        at = _next_start(at, question.step)
    return rows_


def _next_start(at: datetime, step: Step) -> datetime:
    """Return the start of the next step. Days follow the zone's clock changes; hours do not."""
    if step is Step.HOUR:
        return (at.astimezone(UTC) + timedelta(hours=1)).astimezone(at.tzinfo)
    if step is Step.MONTH:
        return (at + timedelta(days=32)).replace(day=1)
    return at + timedelta(days=7 if step is Step.WEEK else 1)


def _label(at: datetime, question: Question) -> str:
    return at.astimezone(question.request.time_zone).strftime(SHOWN[question.step])


@dataclass(frozen=True, slots=True)
class Drawn:
    standing: Standing
    kind: str
    bar: Bar
    tone: str
    may_set: bool


def _budget_bars(rows: Sequence[Budget], now: datetime, may_set: Callable[[Owner], bool]) -> list[Drawn]:
    rows_ = []
    for standing in standings(rows, now):
        owner = standing.budget.owner
        whole = max(standing.budget.gpu_hours, standing.used, standing.forecast, 1)
        over = standing.percent >= 100
        drawn = stacked(
            [
                (round(1000 * standing.used), "over" if over else "used"),
                (round(1000 * max(0.0, standing.forecast - standing.used)), "wanted"),
            ],
            round(1000 * whole),
            f"{standing.percent:.0f} % used, {standing.forecast_percent:.0f} % forecast for the month",
        )
        mark = Bar(drawn.parts, quota=round(1000 * standing.budget.gpu_hours / whole), label=drawn.label)
        tone = "bad" if over else "warn" if standing.forecast_percent > 100 else "good"
        kind = "departments" if isinstance(owner, Department) else "projects"
        rows_.append(Drawn(standing, kind, mark, tone, may_set(owner)))
    return rows_


def _choices(acting: Acting) -> dict[str, Any]:
    return {
        "departments": departments(acting),
        "projects": projects(acting).select_related(None),
        "pools": visible_pools(acting).order_by("name"),
    }
