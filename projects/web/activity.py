"""Here one reads who changed what: every change that people made, before and after."""

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from berth.web.pages import Request, page, signed_in
from berth.web.paging import slice_of
from projects.models import Audit
from projects.selectors import audit


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    asked = {
        key: request.GET.get(key, "").replace("\x00", "")[:100]
        for key in ("actor", "action", "kind", "search")
    }
    exact = {"actor": asked["actor"], "action": asked["action"], "object_type": asked["kind"]}
    rows = audit(request.acting).filter(**{column: value for column, value in exact.items() if value})
    if asked["search"]:
        rows = rows.filter(object_name__icontains=asked["search"])
    found = slice_of(rows, {"at": "pk"}, sort="-at", default="-at", cursor=request.GET.get("cursor", ""))
    everything = audit(request.acting).order_by()
    context = {
        "asked": asked,
        "slice": found,
        "lines": [(row, changes(row)) for row in found.rows],
        "actions": everything.order_by("action").values_list("action", flat=True).distinct(),
        "kinds": everything.order_by("object_type").values_list("object_type", flat=True).distinct(),
        "narrowed": any(asked.values()),
    }
    return page(request, "projects/activity.html", context, inner="projects/activity_rows.html")


def changes(row: Audit) -> list[tuple[str, str, str]]:
    """(what, before, after), for every value that the change touched."""
    before, after = row.before or {}, row.after or {}
    keys = list(dict.fromkeys([*after, *before]))
    return [(key.replace("_", " "), _text(before, key), _text(after, key)) for key in keys]


def _text(values: dict[str, Any], key: str) -> str:
    if key not in values:
        return ""
    value = values[key]
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {'∞' if each is None else each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
