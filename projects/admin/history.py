"""Here admins look up what happened, who changed what and who was told; nothing of it is ever changed."""

from typing import Any

from django.contrib import admin
from unfold.contrib.filters.admin import (
    FieldTextFilter,
    RangeDateTimeFilter,
)
from unfold.decorators import display

from berth.web.administration import ReadOnly, table
from projects.models import (
    Audit,
    Delivery,
    Event,
)
from projects.web.activity import changes


@admin.register(Event)
class EventAdmin(ReadOnly):
    list_display = ("at", "kind", "subject", "message", "actor")
    list_filter = (("kind", FieldTextFilter), ("at", RangeDateTimeFilter), ("actor", FieldTextFilter))
    search_fields = ("subject", "message", "actor")
    date_hierarchy = "at"


@admin.register(Audit)
class AuditAdmin(ReadOnly):
    list_display = ("at", "actor", "action", "object_type", "object_name")
    list_filter = (
        ("action", FieldTextFilter), ("object_type", FieldTextFilter), ("actor", FieldTextFilter),
        ("at", RangeDateTimeFilter),
    )  # fmt: skip
    search_fields = ("actor", "object_name", "action", "request_id")
    date_hierarchy = "at"
    readonly_fields = ("what_changed",)
    fieldsets = (
        (
            None,
            {"fields": ("at", "actor", "action", "object_type", "object_name", "object_id", "request_id")},
        ),
        ("What changed", {"fields": ("what_changed",)}),
    )

    @display(description="Before and after")
    def what_changed(self, row: Audit) -> Any:
        return table(("Value", "Before", "After"), changes(row))


@admin.register(Delivery)
class DeliveryAdmin(ReadOnly):
    list_display = ("at", "kind", "to", "channel", "state", "tries", "last_error")
    list_filter = ("state", "channel", "kind", ("at", RangeDateTimeFilter))
    search_fields = ("to", "last_error")
    date_hierarchy = "at"
