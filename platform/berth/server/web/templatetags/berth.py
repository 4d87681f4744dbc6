"""Template tags: numbers with units, times, state labels, icons and bars."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import template
from django.conf import settings
from django.db.models import Model
from django.template.context import Context
from django.templatetags.static import static
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from berth.core.not_found import remove_cli_suggestions
from berth.core.values.amounts import MILLI
from berth.core.wording.retry_counts import format_retries
from berth.core.wording.words import format_gpu_time, format_number, token_to_words
from berth.server.web import numbers
from berth.server.web.charts.bars import WIDTH, Bar
from berth.server.web.charts.time_axis import time_labels
from berth.server.web.lists.tables import Column, Listing
from berth.server.web.navigation import NavigationEntry, help_chapter, list_entry, navigation_groups
from berth.server.web.search.rank import mark_words
from berth.server.web.states import chip, tone, workload_chip
from berth.server.web.zones import user_time_zone
from projects.access import may_submit_anywhere
from projects.engine.cron_words import describe_cron
from projects.models import Workload, WorkloadKind
from projects.web.services.conditions import use_condition_titles
from projects.web.workloads.listing.sorting import ALL_RUNNING
from scheduler.reports.evictions.predicted import build_prediction_table
from scheduler.reports.evictions.rendering import KIND_TITLES, eviction_preposition
from scheduler.reports.queues.pending_reason import load_awaited_shares, pending_reason
from scheduler.reports.queues.queue_ordering import describe_queue_states, explain_queue_states
from scheduler.reports.queues.unknown_start import unknown_start_summary
from scheduler.web.workloads.timeline.bar import PeriodBar, bar_context

register = template.Library()
register.filter("gpus", numbers.thousandths)
register.filter("gpu_count", numbers.gpu_count)
register.filter("unbroken", numbers.unbroken_units)
register.filter("breakable", numbers.breakable)
register.filter("count", numbers.count)
register.filter("cores", numbers.thousandths)
register.filter("memory", numbers.memory)
register.filter("used_memory", numbers.used_memory)
register.filter("duration", numbers.duration)
register.filter("remove_cli_suggestions", remove_cli_suggestions)
register.filter("gpu_hours", format_gpu_time)
register.filter("elapsed", numbers.elapsed)
register.filter("hours", numbers.hours)
register.filter("money", numbers.money)
register.filter("milliseconds", numbers.milliseconds)
register.filter("seconds", numbers.seconds)
register.filter("label", token_to_words)
register.filter("tenths", numbers.as_percentage)
register.filter("predicted_evictions", build_prediction_table)
register.filter("eviction_preposition", eviction_preposition)
register.filter("pending_reason", pending_reason)
register.filter("describe_queue_states", describe_queue_states)
register.filter("explain_queue_states", explain_queue_states)
register.filter("unknown_start_summary", unknown_start_summary)
register.filter("full_stop", lambda sentence: f"{str(sentence).removesuffix('.')}.")
register.filter("without_stop", lambda text: text if ". " in text else text.removesuffix("."))
register.filter("cron", describe_cron)
register.filter("condition_titles", use_condition_titles)
register.filter("mark_words", mark_words)
register.filter("tone", tone)
register.simple_tag(chip)
register.simple_tag(workload_chip)

UTC_TIME = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?) UTC\b")


@register.simple_tag
def load_pending_reasons(rows: Sequence[Workload]) -> str:
    """Load, in a single query, the data behind the pending reasons of workloads with a restart delay."""
    load_awaited_shares([row for row in rows if isinstance(row, Workload)])
    return ""


@register.filter
def eviction_kind(kind: str) -> str:
    return KIND_TITLES[kind]


@register.simple_tag
def when(moment: datetime | None, style: str = "ago") -> SafeString:
    """Render a UTC time, which scripts convert to the reader's zone.

    Styles are ago, clock (time of day), moment (with the date unless it is today), near (with the date only
    if it is a day away or more), event (moment with seconds), hour (day and time), forecast (near and
    distance), remaining (distance), lasting (for how long) and full. Use near only beside a distance.
    """
    if moment is None:
        return format_html('<span class="faint">{}</span>', numbers.NO_VALUE)
    text = moment.astimezone(UTC).strftime(f"%Y-%m-%d %H:%M{':%S' if style == 'event' else ''} UTC")
    return format_html(
        '<time datetime="{}" data-style="{}" title="{}">{}{}</time>',
        moment.isoformat(),
        style,
        text,
        "since " if style == "lasting" else "",
        text,
    )


@register.filter
def gpu_time(gpu_seconds: float) -> SafeString:
    """Format GPU time with its unit, for a column of numbers."""
    number, _, unit = format_gpu_time(gpu_seconds).rpartition(" ")
    return format_html('{} <span class="unit">{}</span>', number, unit)


@register.filter
def parse_stored_time(text: str) -> datetime | None:
    """Parse a stored time in ISO 8601. Return None if it is missing or invalid."""
    return parse_datetime(text or "")


@register.filter
def is_past(moment: datetime) -> bool:
    return moment <= timezone.now()


@register.filter
def local_times(text: str, style: str = "moment") -> SafeString:
    """Render a sentence. Scripts convert the UTC times in the sentence to the reader's time zone."""
    parts = enumerate(UTC_TIME.split(str(text or "")))
    return format_html_join(
        "", "{}", ((_local_time_element(part, style) if place % 2 else part,) for place, part in parts)
    )


def _local_time_element(text: str, style: str) -> SafeString:
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # the date is not valid, for example 2026-02-31
        return format_html("{} UTC", text)
    return format_html('<time datetime="{}" data-style="{}">{} UTC</time>', moment.isoformat(), style, text)


@register.simple_tag
def currency() -> str:
    return str(settings.BERTH_CURRENCY)


@register.simple_tag
def parent_list_page(path: str) -> NavigationEntry | None:
    """Return the list page that the page at `path` belongs to, or None."""
    return list_entry(path)


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html(
        '<svg aria-hidden="true" focusable="false" width="16" height="16"><use href="{}#{}"></use></svg>',
        static("berth/icons.svg"),
        name,
    )


@register.filter
def kind_icon(kind: str) -> str:
    """Return the name of the icon for a workload kind."""
    icons: dict[str, str] = {WorkloadKind.INTERACTIVE: "session", WorkloadKind.SERVICE: "services"}
    return icons.get(kind, "training")


@register.inclusion_tag("web/parts/bar.html")
def bar(value: Bar, size: str = "") -> dict[str, Any]:
    return {"bar": value, "width": WIDTH, "size": size}


@register.inclusion_tag("web/parts/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    request = context["request"]
    groups = navigation_groups(may_submit=may_submit(context))
    chapter = help_chapter(request.path)
    path = context.get("menu_path", request.path)  # path of the highlighted menu entry
    return {"groups": groups, "path": path, "request": request, "chapter": chapter}


@register.simple_tag(takes_context=True)
def may_submit(context: Context) -> bool:
    """Return whether the user may submit workloads to any project. The result is cached for the request."""
    request = context["request"]
    if not hasattr(request, "may_submit"):
        request.may_submit = may_submit_anywhere(request.actor)
    return bool(request.may_submit)


@register.inclusion_tag("web/parts/time_axis.html", takes_context=True)
def time_axis(context: Context, begin: datetime, end: datetime) -> dict[str, Any]:
    """Render the labels of a time axis in the reader's time zone."""
    return {"labels": time_labels(begin, end, user_time_zone(context["request"]))}


@register.inclusion_tag("scheduler/workloads/period_bar.html", takes_context=True)
def period_bar(context: Context, bar: PeriodBar) -> dict[str, Any]:
    """Render the bar that shows a workload's periods. Times are in the reader's time zone."""
    return {"request": context["request"], **bar_context(bar, user_time_zone(context["request"]))}


@register.filter
def commands(text: str) -> SafeString:
    """Render text with commands in backticks as HTML. Safe text is not escaped again."""
    parts = enumerate(mark_safe(part) if isinstance(text, SafeString) else part for part in text.split("`"))  # noqa: S308
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if place % 2 else part,) for place, part in parts)
    )


@register.filter
def retries(counts: dict[str, int]) -> str:
    return format_retries(counts).replace("_", " ")


@register.filter
def split(text: str) -> list[str]:
    return text.split()


@register.filter
def is_current(place: Any, path: str) -> bool:
    return bool(place.contains(path))


@register.inclusion_tag("web/parts/sort.html", takes_context=True)
def sortable_header(
    context: Context, key: str, title: str, classes: str = "", rowspan: int = 1, *, ascending: bool = False
) -> dict[str, Any]:
    """Render a column header that sorts the list by its column, and reverses the order on the next click.

    The first click puts the largest values at the top, unless `ascending` is set.
    """
    current_sort = context["sort"]
    down = current_sort == f"-{key}"
    query = context["request"].GET.copy()
    for name in ("cursor", "rows"):
        query.pop(name, None)
    query["sort"] = key if down or (ascending and current_sort != key) else f"-{key}"
    return {
        "title": title,
        "query": query.urlencode(),
        "classes": classes,
        "rowspan": rowspan,
        "order": ("descending" if down else "ascending") if current_sort.removeprefix("-") == key else "",
    }


@register.inclusion_tag("web/parts/heads.html", takes_context=True)
def column_headers(
    context: Context, listing: Listing[Any], target: str = "#rows", last: str = "", *, picks: bool = False
) -> dict[str, Any]:
    """Render the column headers of a list.

    `last` is the header of the button column. With `picks`, the first column selects rows.
    """
    return {
        "picks": picks,
        "cells": [
            _header(context, listing, column, target) for column in listing.columns if not column.is_csv_only
        ],
        "last": last,
    }


def _header(context: Context, listing: Listing[Any], column: Column[Any], target: str) -> dict[str, Any]:
    current_sort, key = listing.sort, column.key
    query = context["request"].GET.copy()
    query.pop(listing.parameter("cursor"), None)
    first, second = (f"-{key}", key) if column.is_largest_first else (key, f"-{key}")
    query[listing.parameter("sort")] = second if current_sort == first else first
    return {
        "title": column.page_title or column.title,
        "unit": "" if column.unit == "%" else column.unit,  # the cells contain the percent sign
        "query": query.urlencode() if key in listing.sorts else "",
        "classes": " ".join(filter(None, ("num" * column.number, "secondary" * column.is_secondary))),
        "target": target,
        "order": ("descending" if current_sort == f"-{key}" else "ascending")
        if current_sort.removeprefix("-") == key
        else "",
    }


@register.inclusion_tag("web/parts/table_tools.html", takes_context=True)
def table_tools(
    context: Context, listing: Listing[Any], placeholder: str, target: str = "#rows"
) -> dict[str, Any]:
    """Render the search field and the export link of a list."""
    query = context["request"].GET
    own_parameters = {listing.parameter(what) for what in ("search", "cursor", "format")}
    return {
        "listing": listing,
        "word": listing.parameter("search"),
        "placeholder": placeholder,
        "target": target,
        "other_parameters": [
            (name, value) for name in query if name not in own_parameters for value in query.getlist(name)
        ],
        "request": context["request"],
        "path": context["request"].path,
    }


@register.simple_tag(takes_context=True)
def export_link(context: Context, listing: Listing[Any]) -> SafeString:
    """Render the link to a CSV file of all rows that match the filters, in the page's order."""
    return csv_link(f"?{_export_query(context, listing)}")


@register.simple_tag
def csv_link(address: str, label: str = "Download CSV", *, follows_filters: bool = False) -> SafeString:
    """Render a link in a card's header that downloads a CSV file.

    With `follows_filters`, scripts add the page's current filters to the URL.
    """
    return format_html(
        '<a class="icon-button small csv" href="{}" download aria-label="{}" title="{}"{}>{}</a>',
        address,
        label,
        label,
        mark_safe(" data-follows-filters") if follows_filters else "",
        icon("download"),
    )


def _export_query(context: Context, listing: Listing[Any]) -> str:
    query = context["request"].GET.copy()
    query.pop(listing.parameter("cursor"), None)
    query[listing.parameter("format")] = "csv"
    return str(query.urlencode())


@register.inclusion_tag("web/parts/table_pager.html", takes_context=True)
def table_pager(context: Context, listing: Listing[Any], target: str = "#rows") -> dict[str, Any]:
    links = []
    for title, cursor in (("Previous", listing.previous), ("Next", listing.next)):
        if cursor is not None:
            query = context["request"].GET.copy()
            query[listing.parameter("cursor")] = cursor
            links.append((title, query.urlencode()))
    return {"links": links, "extent": listing.row_range_text, "target": target}


@register.inclusion_tag("web/parts/sort.html", takes_context=True)
def quota_column_header(context: Context, pool: Any, name: str, field: Any) -> dict[str, Any]:
    """Render a column header of the quota grid, for one quota value in one pool or quota group."""
    scale = MILLI if field.kind == "amount" else 1
    data = {
        "pool": pool.name,
        "place": pool.kind_and_name,
        "field": name,
        "kind": field.kind,
        "scale": scale,
        "adds": "1" if field.adds_up else "",
        "default": field.default_text,
    }
    return {
        **sortable_header(context, f"{name}.{pool.name}", field.title, "num"),
        "unit": field.unit,
        "data": data,
    }


@register.filter
def is_healthy(workload: Any) -> bool:
    """Return whether a workload runs with all of its pods. If so, its message can be omitted."""
    return workload.phase == "running" and bool(re.fullmatch(ALL_RUNNING, workload.message))


@register.filter
def runtime_end(workload: Any) -> datetime | None:
    """Return the time at which the current run reaches its maximum runtime.

    Return None if the run has not started or has no maximum.
    """
    if workload.started_at is None or workload.max_runtime is None:
        return None
    return workload.started_at + timedelta(seconds=workload.max_runtime)


@register.filter
def model_label(row: Model) -> str:
    """Return the label of an object's type, such as "quota"."""
    return str(row._meta.verbose_name)


@register.filter
def amount_or(value: float | str | None, fallback: str) -> str:
    """Format an amount, or return `fallback` if it is missing."""
    return fallback if value is None or value == "" else format_number(float(value))
