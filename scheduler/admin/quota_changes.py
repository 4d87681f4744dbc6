"""Read-only admin pages for quota changes."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from berth.server.web.admin_site.base import ReadOnlyModelAdmin, actor, render_table
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import NO_VALUE
from projects.models import QuotaChange
from scheduler.web.quotas.history import ListedChange, list_changes


@admin.register(QuotaChange)
class QuotaChangeAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "description", "actor", "comment", "reverts")
    list_display_links = ("description",)
    list_filter = (("at", TimeRangeFilter), ("actor", FieldTextFilter))
    search_fields = ("actor", "comment")
    search_help_text = "User or comment"
    page_in_berth = "quota-changes"
    readonly_fields = ("description", "quota_values")
    fieldsets = (
        ("Quota change", {"fields": ("description", "at", "actor", "comment", "reverts")}),
        ("Values", {"fields": ("quota_values",), "classes": ("unlabelled",)}),
    )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Add a description to each change on the page. The number of queries does not depend on the number
        of rows.
        """
        changes_list = super().get_changelist_instance(request)
        changes_list.result_list = list(changes_list.result_list)
        for listed in list_changes(actor(request), changes_list.result_list):
            listed.change.listed = listed  # type: ignore[attr-defined]
        return changes_list

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuotaChange | None:
        row: QuotaChange | None = super().get_object(request, *args, **kwargs)
        if row is not None:
            (row.listed,) = list_changes(actor(request), [row])  # type: ignore[attr-defined]
        return row

    @display(description="Change")
    def description(self, row: QuotaChange) -> str:
        return _listed_change(row).description

    @display(description="Quotas before and after")
    def quota_values(self, row: QuotaChange) -> Any:
        values = [
            (f"{quota.name} in {quota.place}", label, before or NO_VALUE, after or NO_VALUE)
            for quota in _listed_change(row).quotas
            for label, before, after in quota.values
        ]
        return render_table(("Quota", "Value", "Before", "After"), values)


def _listed_change(row: QuotaChange) -> ListedChange:
    listed: ListedChange = row.listed  # type: ignore[attr-defined]
    return listed
