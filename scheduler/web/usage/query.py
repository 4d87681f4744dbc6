"""Parse the usage page's query string."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.http import QueryDict

from berth.core.errors import Invalid
from scheduler.reports.usage.query import usage_request
from scheduler.reports.usage.report import ReportStep, UsageDimension, UsageRequest, UsageRow

SPANS = {
    "24h": ("24 hours", ReportStep.HOUR),
    "7d": ("7 days", ReportStep.DAY),
    "month": ("This month", ReportStep.DAY),
    "last": ("Last month", ReportStep.DAY),
    "90d": ("90 days", ReportStep.WEEK),
    "12m": ("12 months", ReportStep.MONTH),
}
SPAN_LENGTHS = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "90d": timedelta(days=90)}
DEFAULT_SPAN, DEFAULT_DIMENSION = "month", UsageDimension.PROJECT


@dataclass(frozen=True, slots=True)
class UsageQuery:
    span: str
    step: ReportStep
    chosen: ReportStep | None  # step chosen by the user; None if the span determines it
    by: UsageDimension
    only: dict[UsageDimension, str]
    request: UsageRequest
    search: str  # words that must occur in a row's names

    def matching_rows(self, rows: Iterable[UsageRow]) -> list[UsageRow]:
        words = self.search.lower().split()
        return [row for row in rows if all(word in row.names[self.by].lower() for word in words)]


def parse_usage_query(parameters: QueryDict, now: datetime, zone: ZoneInfo) -> UsageQuery:
    span = parameters.get("span", DEFAULT_SPAN)
    span = span if span in SPANS else DEFAULT_SPAN
    begin, end = _span_bounds(span, now, zone)
    by = _parse_choice(parameters.get("by"), UsageDimension, DEFAULT_DIMENSION)
    only = {
        key: name for key in UsageDimension if (name := parameters.get(key, "").replace("\x00", "")[:150])
    }
    chosen = _parse_choice(parameters.get("step"), ReportStep, None)
    step = chosen or SPANS[span][1]
    words: dict[str, Any] = {"since": begin, "until": end, "group_by": [by], "time_zone": zone.key}
    words["only"] = {str(key): name for key, name in only.items()}
    try:
        usage_query = usage_request(now, step=step, **words)
    except Invalid:  # the period has too many rows at this step
        step, chosen = SPANS[span][1], None
        usage_query = usage_request(now, step=step, **words)
    search = parameters.get("search", "").replace("\x00", "")[:100].strip()
    return UsageQuery(span, step, chosen, by, only, usage_query, search)


def _span_bounds(span: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    if span in SPAN_LENGTHS:
        return now - SPAN_LENGTHS[span], now
    month = now.astimezone(zone).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    if span == "month":
        return min(month, now - timedelta(hours=1)).astimezone(UTC), now
    if span == "last":
        return (month - timedelta(days=1)).replace(day=1).astimezone(UTC), month.astimezone(UTC)
    return month.replace(year=month.year - 1).astimezone(UTC), now


def _parse_choice(text: str | None, words: Any, usual: Any) -> Any:
    try:
        return words(text)
    except ValueError:
        return usual
