"""Read-only admin pages for events, the audit log, quota changes, budgets and deliveries."""

from typing import Any

from django.contrib import admin
from unfold.contrib.filters.admin import FieldTextFilter, RelatedDropdownFilter
from unfold.decorators import display

from berth.server.web.admin_site.base import ReadOnlyModelAdmin, render_json, render_table
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from projects.models import (
    Audit,
    Budget,
    Delivery,
    Event,
    QuotaChange,
)
from projects.services.notifications.subscriptions import display_address
from projects.web.activity.values import changes


@admin.register(Event)
class EventAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "kind", "subject", "message", "actor")
    list_filter = (("kind", FieldTextFilter), ("at", TimeRangeFilter), ("actor", FieldTextFilter))
    search_fields = ("subject", "message", "actor")
    date_hierarchy = "at"


@admin.register(Audit)
class AuditAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "actor", "action", "object_type", "object_name")
    list_filter = (
        ("action", FieldTextFilter), ("object_type", FieldTextFilter), ("actor", FieldTextFilter),
        ("at", TimeRangeFilter),
    )  # fmt: skip
    search_fields = ("actor", "object_name", "action", "request_id")
    date_hierarchy = "at"
    readonly_fields = ("changed_values",)
    fieldsets = (
        (
            None,
            {"fields": ("at", "actor", "action", "object_type", "object_name", "object_id", "request_id")},
        ),
        ("Values", {"fields": ("changed_values",)}),
    )

    @display(description="Before and after")
    def changed_values(self, row: Audit) -> Any:
        return render_table(("Value", "Before", "After"), changes(row))


@admin.register(QuotaChange)
class QuotaChangeAdmin(ReadOnlyModelAdmin):
    list_display = ("id", "at", "actor", "comment", "quotas", "reverts")
    list_filter = (("at", TimeRangeFilter), ("actor", FieldTextFilter))
    search_fields = ("actor", "comment")
    date_hierarchy = "at"
    readonly_fields = ("quota_values",)
    fieldsets = (
        (None, {"fields": ("at", "actor", "comment", "reverts")}),
        ("Quotas", {"fields": ("quota_values",)}),
    )

    @display(description="Quotas")
    def quotas(self, row: QuotaChange) -> int:
        return len(row.written)

    @display(description="Quotas before and after")
    def quota_values(self, row: QuotaChange) -> Any:
        return render_json(row.written)


@admin.register(Budget)
class BudgetAdmin(ReadOnlyModelAdmin):
    """Read-only admin for budgets, which are set on the usage page."""

    list_display = ("owner", "gpu_hours", "alert_thresholds", "updated_at")
    list_filter = (("department", RelatedDropdownFilter), ("project", RelatedDropdownFilter))
    list_select_related = ("department", "project")
    search_fields = ("project__name", "department__name")
    readonly_fields = ("alert_thresholds",)

    @display(description="Owner")
    def owner(self, row: Budget) -> str:
        return str(row.owner)

    @display(description="Alert thresholds")
    def alert_thresholds(self, row: Budget) -> str:
        return ", ".join(f"{percent}%" for percent in row.warn_at)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyModelAdmin):
    """Read-only admin for deliveries. Webhook URLs are masked because they are secret."""

    list_display = ("at", "kind", "address", "channel", "state", "attempts", "last_error")
    exclude = ("to",)
    readonly_fields = ("address",)
    columns = ("at", "kind", "channel", "state", "attempts", "last_error", "ended_at")
    list_filter = ("state", "channel", "kind", ("at", TimeRangeFilter))
    search_fields = ("to", "last_error")
    date_hierarchy = "at"

    @display(description="To")
    def address(self, row: Delivery) -> str:
        return display_address(row.to)
