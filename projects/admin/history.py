"""Read-only admin pages of events, audit, quota changes and deliveries."""

from typing import Any

from django.contrib import admin
from unfold.contrib.filters.admin import FieldTextFilter, RelatedDropdownFilter
from unfold.decorators import display

from berth.server.web.admin_site.base import ReadOnly, pretty, table
from berth.server.web.admin_site.time_filter import TimesBetween
from projects.models import (
    Audit,
    Budget,
    Delivery,
    Event,
    QuotaChange,
)
from projects.services.notifications.subscriptions import shown_address
from projects.web.activity import changes


@admin.register(Event)
class EventAdmin(ReadOnly):
    list_display = ("at", "kind", "subject", "message", "actor")
    list_filter = (("kind", FieldTextFilter), ("at", TimesBetween), ("actor", FieldTextFilter))
    search_fields = ("subject", "message", "actor")
    date_hierarchy = "at"


@admin.register(Audit)
class AuditAdmin(ReadOnly):
    list_display = ("at", "actor", "action", "object_type", "object_name")
    list_filter = (
        ("action", FieldTextFilter), ("object_type", FieldTextFilter), ("actor", FieldTextFilter),
        ("at", TimesBetween),
    )  # fmt: skip
    search_fields = ("actor", "object_name", "action", "request_id")
    date_hierarchy = "at"
    readonly_fields = ("what_changed",)
    fieldsets = (
        (
            None,
            {"fields": ("at", "actor", "action", "object_type", "object_name", "object_id", "request_id")},
        ),
        ("Values", {"fields": ("what_changed",)}),
    )

    @display(description="Before and after")
    def what_changed(self, row: Audit) -> Any:
        return table(("Value", "Before", "After"), changes(row))


@admin.register(QuotaChange)
class QuotaChangeAdmin(ReadOnly):
    list_display = ("id", "at", "actor", "comment", "quotas", "reverts")
    list_filter = (("at", TimesBetween), ("actor", FieldTextFilter))
    search_fields = ("actor", "comment")
    date_hierarchy = "at"
    readonly_fields = ("what_was_written",)
    fieldsets = (
        (None, {"fields": ("at", "actor", "comment", "reverts")}),
        ("Quotas", {"fields": ("what_was_written",)}),
    )

    @display(description="Quotas")
    def quotas(self, row: QuotaChange) -> int:
        return len(row.written)

    @display(description="Quotas before and after")
    def what_was_written(self, row: QuotaChange) -> Any:
        return pretty(row.written)


@admin.register(Budget)
class BudgetAdmin(ReadOnly):
    """Read-only admin of budgets, which are set on the usage page."""

    list_display = ("owner", "gpu_hours", "warns_at", "updated_at")
    list_filter = (("department", RelatedDropdownFilter), ("project", RelatedDropdownFilter))
    list_select_related = ("department", "project")
    search_fields = ("project__name", "department__name")
    readonly_fields = ("warns_at",)

    @display(description="Owner")
    def owner(self, row: Budget) -> str:
        return str(row.owner)

    @display(description="Alert thresholds")
    def warns_at(self, row: Budget) -> str:
        return ", ".join(f"{percent} %" for percent in row.warn_at)


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly):
    """Admin of deliveries. A webhook address is a secret and not shown in full."""

    list_display = ("at", "kind", "address", "channel", "state", "attempts", "last_error")
    exclude = ("to",)
    readonly_fields = ("address",)
    columns = ("at", "kind", "channel", "state", "attempts", "last_error", "ended_at")
    list_filter = ("state", "channel", "kind", ("at", TimesBetween))
    search_fields = ("to", "last_error")
    date_hierarchy = "at"

    @display(description="To")
    def address(self, row: Delivery) -> str:
        return shown_address(row.to)
