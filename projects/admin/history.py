"""Read-only admin pages for events, the audit log, budgets and deliveries."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.contrib.filters.admin import DropdownFilter, FieldTextFilter, RelatedDropdownFilter
from unfold.decorators import display

from berth.core.wording.words import token_to_words
from berth.server.web.admin_site.base import ReadOnlyModelAdmin, actor, render_table
from berth.server.web.admin_site.links import link_to_existing
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import NO_VALUE
from projects.admin.audit_columns import AuditColumns, audit_columns
from projects.models import Audit, Budget, Delivery, Event, Project
from projects.services.notifications.subscriptions import display_address
from projects.web.activity.entries import NOUNS
from projects.web.activity.values import changes


class ActionFilter(DropdownFilter):
    """Filter whose choices are the actions in the audit log."""

    title, parameter_name = "action", "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        actions = Audit.objects.order_by("action").values_list("action", flat=True).distinct()
        return [(action, token_to_words(action)) for action in actions]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Audit]) -> QuerySet[Audit]:
        return queryset.filter(action=self.value()) if self.value() else queryset


class ObjectTypeFilter(DropdownFilter):
    """Filter whose choices are the object types in the audit log."""

    title, parameter_name = "object type", "object_type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        types = Audit.objects.order_by().values_list("object_type", flat=True).distinct()
        return sorted(((each, object_title(each)) for each in types), key=lambda choice: choice[1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Audit]) -> QuerySet[Audit]:
        return queryset.filter(object_type=self.value()) if self.value() else queryset


@admin.register(Event)
class EventAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "subject", "kind_title", "message", "actor")
    list_display_links = ("subject",)
    list_filter = (("kind", FieldTextFilter), ("at", TimeRangeFilter), ("actor", FieldTextFilter))
    search_fields = ("subject", "message", "actor")
    search_help_text = "Object, message or user"

    @display(description="Kind", ordering="kind")
    def kind_title(self, row: Event) -> str:
        return token_to_words(row.kind)


@admin.register(Audit)
class AuditAdmin(ReadOnlyModelAdmin):
    list_display = ("at", "action_title", "object_link", "project_link", "details", "actor", "request_code")
    list_display_links = ("action_title",)
    list_filter = (ActionFilter, ObjectTypeFilter, ("actor", FieldTextFilter), ("at", TimeRangeFilter))
    search_fields = ("actor", "object_name", "action", "request_id")
    search_help_text = "User, name, action or request ID"
    page_in_berth = "activity"
    readonly_fields = (
        "change",
        "action_title",
        "object_title",
        "object_link",
        "project_link",
        "changed_values",
    )
    fieldsets = (
        (
            "Change",
            {
                "fields": (
                    "change", "at", "actor", "object_title", "object_link", "object_id", "project_link",
                    "request_id",
                )
            },
        ),
        ("Values", {"fields": ("changed_values",), "classes": ("unlabelled",)}),
    )  # fmt: skip

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Describe the entries on the page in sentences.

        The number of queries does not depend on the number of rows.
        """
        changes_list = super().get_changelist_instance(request)
        changes_list.result_list = rows = list(changes_list.result_list)
        for columns in audit_columns(actor(request), rows):
            columns.entry.row.columns = columns  # type: ignore[attr-defined]
        return changes_list

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Audit | None:
        row: Audit | None = super().get_object(request, *args, **kwargs)
        if row is not None:
            (row.columns,) = audit_columns(actor(request), [row])  # type: ignore[attr-defined]
        return row

    @display(description="Change")
    def change(self, row: Audit) -> str:
        entry = _columns(row).entry
        return capfirst(f"{entry.verb} {entry.name}{entry.tail}")

    @display(description="Action", ordering="action")
    def action_title(self, row: Audit) -> str:
        return _columns(row).action

    @display(description="Object", ordering="object_name")
    def object_link(self, row: Audit) -> str:
        columns = _columns(row)
        name = columns.entry.name
        if columns.model is not None:
            return link_to_existing(columns.model, row.object_id, name)
        link = columns.entry.link
        return format_html('<a href="{}">{}</a>', link, name) if link else name

    @display(description="Project")
    def project_link(self, row: Audit) -> str:
        project = _columns(row).project
        return link_to_existing(Project, project.pk, project.name) if project else ""

    @display(description="Details")
    def details(self, row: Audit) -> str:
        return _columns(row).details

    @display(description="Request ID", ordering="request_id")
    def request_code(self, row: Audit) -> str:
        return (
            format_html('<code title="{}">{}</code>', row.request_id, row.request_id)
            if row.request_id
            else ""
        )

    @display(description="Object type")
    def object_title(self, row: Audit) -> str:
        return object_title(row.object_type)

    @display(description="Values before and after")
    def changed_values(self, row: Audit) -> Any:
        rows = [(label, old or NO_VALUE, new or NO_VALUE) for label, old, new in changes(row)]
        return render_table(("Value", "Before", "After"), rows)


@admin.register(Budget)
class BudgetAdmin(ReadOnlyModelAdmin):
    """Read-only admin for budgets, which are set on the usage page."""

    list_display = ("owner", "gpu_hours", "alert_thresholds", "updated_at")
    list_filter = (("department", RelatedDropdownFilter), ("project", RelatedDropdownFilter))
    list_select_related = ("department", "project")
    search_fields = ("project__name", "department__name")
    search_help_text = "Department or project"
    page_in_berth = "usage"
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
    list_display_links = ("address",)
    exclude = ("to",)
    readonly_fields = ("address",)
    columns = ("at", "kind", "channel", "state", "attempts", "last_error", "ended_at")
    list_filter = ("state", "channel", "kind", ("at", TimeRangeFilter))
    search_fields = ("to", "last_error")
    search_help_text = "Address or error"
    page_in_berth = "notifications"

    @display(description="To")
    def address(self, row: Delivery) -> str:
        return display_address(row.to)


def object_title(object_type: str) -> str:
    return capfirst(NOUNS.get(object_type, object_type))


def _columns(row: Audit) -> AuditColumns:
    columns: AuditColumns = row.columns  # type: ignore[attr-defined]
    return columns
