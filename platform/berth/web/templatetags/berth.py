"""Here we give templates their words: numbers with units, times, chips, icons, bars."""

from datetime import datetime
from typing import Any

from django import template
from django.db.models import Model
from django.template.context import Context
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from berth.core.amounts import MILLI
from berth.web import numbers
from berth.web.bars import WIDTH, Bar
from berth.web.navigation import GROUPS

register = template.Library()
register.filter("gpus", numbers.thousandths)
register.filter("cores", numbers.thousandths)
register.filter("memory", numbers.memory)
register.filter("duration", numbers.duration)
register.filter("gpu_hours", numbers.gpu_hours)
register.filter("hours", numbers.hours)
register.filter("money", numbers.money)
register.filter("milliseconds", numbers.milliseconds)
register.filter("spoken", numbers.spoken)
register.filter("tenths", numbers.tenths)

TONES = {
    "pending": "warn",
    "reserved": "info",
    "starting": "info",
    "running": "good",
    "stopping": "warn",
    "suspended": "",
    "completed": "accent",
    "failed": "bad",
    "cancelled": "",
    "succeeded": "accent",
    "stopped": "",
    "lost": "bad",
    "requested": "info",
    "booting": "info",
    "ready": "good",
    "cordoned": "warn",
    "draining": "warn",
    "ended": "",
    "reclaim": "warn",
    "preempt": "warn",
    "shrink": "info",
    "consolidate": "info",
    "stale_gang": "bad",
    "drain": "info",
    # of engines of services, and of requests to have more or fewer of them
    "PENDING": "warn",
    "CREATING": "info",
    "CONNECTING": "info",
    "HEALTH_CHECKING": "info",
    "WEIGHT_SYNCING": "info",
    "READY": "good",
    "ACTIVE": "good",
    "DRAINING": "warn",
    "REMOVING": "warn",
    "ROLLING_BACK": "warn",
    "PARTIAL": "warn",
    "COMPLETED": "accent",
    "FAILED": "bad",
}


@register.simple_tag
def chip(state: str, text: str = "") -> SafeString:
    """A state as a coloured word."""
    return format_html('<span class="chip {}">{}</span>', TONES.get(state, ""), text or numbers.spoken(state))


@register.filter
def tone(kind: str) -> str:
    return TONES.get(kind, "")


@register.simple_tag
def when(moment: datetime | None, style: str = "ago") -> SafeString:
    """A time: UTC as it stands in the page, in the reader's zone once scripts run. Styles: ago, full."""
    if moment is None:
        return format_html('<span class="faint">{}</span>', numbers.NOTHING)
    text = localtime(moment).strftime("%Y-%m-%d %H:%M UTC")
    return format_html(
        '<time datetime="{}" data-style="{}" title="{}">{}</time>', moment.isoformat(), style, text, text
    )


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html(
        '<svg aria-hidden="true" focusable="false" width="16" height="16"><use href="{}#{}"></use></svg>',
        static("berth/icons.svg"),
        name,
    )


@register.inclusion_tag("web/parts/bar.html")
def bar(drawn: Bar, size: str = "") -> dict[str, Any]:
    return {"bar": drawn, "width": WIDTH, "size": size}


@register.inclusion_tag("web/parts/navigation.html", takes_context=True)
def navigation(context: Context) -> dict[str, Any]:
    return {"groups": GROUPS, "path": context["request"].path, "request": context["request"]}


@register.filter
def split(text: str) -> list[str]:
    return text.split()


@register.filter
def current(place: Any, path: str) -> bool:
    return bool(place.holds(path))


@register.inclusion_tag("web/parts/sort.html", takes_context=True)
def sort_head(context: Context, key: str, title: str, classes: str = "", rowspan: int = 1) -> dict[str, Any]:
    """A column's head that sorts by it; sorting again turns the order round."""
    now = context["sort"]
    down = now == f"-{key}"
    query = context["request"].GET.copy()
    for name in ("cursor", "rows"):
        query.pop(name, None)
    query["sort"] = key if down else f"-{key}"
    return {
        "title": title,
        "query": query.urlencode(),
        "classes": classes,
        "rowspan": rowspan,
        "order": ("descending" if down else "ascending") if now.removeprefix("-") == key else "",
    }


@register.inclusion_tag("web/parts/sort.html", takes_context=True)
def column_head(context: Context, pool: str, name: str, field: Any) -> dict[str, Any]:
    """Of the grid of quotas: a value in a pool."""
    scale = MILLI if field.kind == "amount" else 1
    told = {
        "pool": pool,
        "field": name,
        "kind": field.kind,
        "scale": scale,
        "adds": "1" if field.adds_up else "",
    }
    return {
        **sort_head(context, f"{name}.{pool}", field.title, "num"),
        "unit": field.unit,
        "data": told,
    }


@register.filter
def kind_of(row: Model) -> str:
    """What a row is, in the glossary's word."""
    return str(row._meta.verbose_name)


@register.filter
def bound(value: float | str | None, without: str) -> str:
    """An amount that counts whole units already, or what stands for none."""
    return without if value is None or value == "" else f"{value:,g}"
