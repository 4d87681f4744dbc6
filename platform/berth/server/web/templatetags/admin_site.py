"""Template tags of the admin site."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django import template
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from berth.server.settings.admin_site import SECTIONS
from berth.server.web.numbers import NO_VALUE
from projects.web.activity.entries import NOUNS

register = template.Library()
# The library renders cells as HTML. Boolean cells contain an icon, so they are never empty.
EMPTY_CELL = re.compile(rf"^<t[dh][^>]*>\s*{NO_VALUE}?\s*</t[dh]>$")


@register.filter
def sidebar_path(parts: Sequence[Mapping[str, Any]], request: HttpRequest) -> list[Mapping[str, Any]]:
    """Show the sidebar's section and title instead of Django's app and model in the breadcrumbs."""
    lists = {
        reverse(f"admin:{model}_changelist"): (section, title)
        for section, items in SECTIONS.items()
        for title, _, model in items
    }
    address = str(parts[1]["link"]) if len(parts) > 1 and "link" in parts[1] else _list_page_path(request)
    if address not in lists:
        return list(parts)
    section, title = lists[address]
    path: list[Mapping[str, Any]] = [{"title": section}, {"title": title, "link": address}, *parts[2:]]
    if not parts[2:] and (name := _added_object(request)):
        path.append({"title": f"Add {name}"})
    return path


def _list_page_path(request: HttpRequest) -> str:
    """If the page creates an object, return the URL of the list of such objects. Otherwise, return ""."""
    return request.path.removesuffix("add/") if _added_object(request) else ""


def _added_object(request: HttpRequest) -> str:
    """Return the kind of object that the page creates, or "" if the page creates none."""
    name = getattr(request.resolver_match, "url_name", None) or ""
    models = {
        f"{model._meta.app_label}_{model._meta.model_name}_add": model for model in admin.site._registry
    }
    return str(models[name]._meta.verbose_name) if name in models else ""


@register.filter
def empty_columns(rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the positions of the columns that are empty in every row."""
    columns: Sequence[tuple[str, ...]] = list(zip(*rows, strict=True))
    return {place for place, cells in enumerate(columns) if all(map(EMPTY_CELL.search, cells))}


@register.filter
def without(items: Sequence[Any], hidden: Collection[int]) -> list[Any]:
    return [item for place, item in enumerate(items) if place not in hidden]


@register.filter
def mark_if_empty(cell: SafeString) -> SafeString:
    """Add a CSS class to a cell without a value, so that cards on phones omit the cell."""
    if not EMPTY_CELL.search(cell):
        return cell
    return mark_safe(cell.replace(' class="', ' class="empty ', 1))  # noqa: S308 - rendered by the library


@register.filter
def audit_entries_url(row: Model) -> str:
    """Return the URL of the audit entries about an object, or "" if its changes are not audited."""
    kind = str(row._meta.model_name)
    if kind not in NOUNS:
        return ""
    query = urlencode({"object_type": kind, "object_id": row.pk})
    return f"{reverse('admin:projects_audit_changelist')}?{query}"


@register.filter
def row_class(model_admin: Any, row: Any) -> str:
    return str(model_admin.row_class(row))
