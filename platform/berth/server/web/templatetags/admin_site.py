"""Template tags of the admin site."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.urls import reverse

from berth.server.settings.admin_site import SECTIONS

register = template.Library()


@register.filter
def sidebar_path(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Replace the Django app and the model in a page's path with the sidebar's section and title."""
    lists = {
        reverse(f"admin:{model}_changelist"): (section, title)
        for section, items in SECTIONS.items()
        for title, _, model in items
    }
    address = str(parts[1]["link"]) if len(parts) > 1 and "link" in parts[1] else ""
    if address not in lists:
        return list(parts)
    section, title = lists[address]
    return [{"title": section}, {"title": title, "link": address}, *parts[2:]]
