"""Admin pages for workloads and pods."""

from typing import Any

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import ChoicesDropdownFilter, DropdownFilter, RelatedDropdownFilter
from unfold.decorators import display

from berth.core.errors import RateLimited
from berth.core.wording.words import token_to_words
from berth.server.web.admin_site.base import (
    ReadOnlyModelAdmin,
    bulk_action,
    render_json,
    render_table,
)
from berth.server.web.admin_site.labels import label_fields
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import thousandths
from projects.models import (
    Pod,
    Workload,
    WorkloadRole,
)
from projects.services import workloads
from projects.services.workloads.pending.smallest_change import unredacted_smallest_change

PHASES = {
    "pending": "warning", "reserved": "info", "starting": "info", "running": "success", "stopping": "warning",
    "failed": "danger", "completed": "info",
}  # fmt: skip


class RoleInline(TabularInline):
    model = WorkloadRole
    fields = readonly_fields = (
        "name",
        "min",
        "max",
        "gpu_milli",
        "gpu_devices",
        "cpu_milli",
        "memory_mib",
    )
    extra, can_delete, max_num = 0, False, 0

    def __init__(self, parent_model: type[Any], admin_site: AdminSite) -> None:
        label_fields(WorkloadRole)
        super().__init__(parent_model, admin_site)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return True  # the user may view the workload, and roles are part of it


class ArrayTaskFilter(DropdownFilter):
    """Filter that hides the tasks of arrays, or shows only tasks."""

    title, parameter_name = "array tasks", "tasks"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("hide", "Hide tasks"), ("only", "Only tasks")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workload]) -> QuerySet[Workload]:
        if self.value() not in ("hide", "only"):
            return queryset
        return queryset.filter(array__isnull=self.value() == "hide")


@admin.register(Workload)
class WorkloadAdmin(ReadOnlyModelAdmin):
    list_display = (
        "name",
        "project",
        "kind",
        "state",
        "reason_label",
        "gpus",
        "priority",
        "submitted_by",
        "submitted_at",
    )
    list_filter = (
        ("phase", ChoicesDropdownFilter),
        ("kind", ChoicesDropdownFilter),
        ("project", RelatedDropdownFilter),
        ArrayTaskFilter,
        ("submitted_at", TimeRangeFilter),
        "preemptible",
    )
    ordering = ("-submitted_at", "name")
    list_select_related = ("project", "submitted_by")
    search_fields = ("name", "project__name", "submitted_by__username")
    search_help_text = "Name, project or user"
    page_in_berth = "workloads"
    inlines = (RoleInline,)
    actions = ("cancel", "suspend", "resume", "download")
    columns = (
        "id", "name", "project_id", "kind", "phase", "reason", "priority", "preemptible", "gpu_milli_min",
        "submitted_at", "started_at", "ended_at", "preemptions", "restarts", "exit_code",
    )  # fmt: skip
    readonly_fields = ("pending_reason", "smallest_change", "document")
    fieldsets = (
        (
            "Workload",
            {
                "fields": (
                    "name",
                    "project",
                    "kind",
                    "submitted_by",
                    "submitted_at",
                    "priority",
                    "preemptible",
                    "pools",
                )
            },
        ),
        (
            "State",
            {
                "fields": (
                    "phase",
                    "reason",
                    "message",
                    "since",
                    "next_phase",
                    "pending_reason",
                    "smallest_change",
                )
            },
        ),
        (
            "Runs",
            {
                "fields": (
                    "run",
                    "preemptions",
                    "restarts",
                    "started_at",
                    "ended_at",
                    "exit_code",
                    "backoff_until",
                )
            },
        ),
        ("Document", {"fields": ("labels", "document")}),
    )

    def view_on_site(self, row: Workload) -> str:
        return reverse("workload", args=[row.pk])

    @display(description="Reason", ordering="reason")
    def reason_label(self, row: Workload) -> str:
        return "" if row.reason.lower() == row.phase else token_to_words(row.reason)

    @display(description="State", label=PHASES, ordering="phase")
    def state(self, row: Workload) -> str:
        return row.phase

    @display(description="GPUs", ordering="gpu_milli_min")
    def gpus(self, row: Workload) -> str:
        return f"{thousandths(row.gpu_milli_now)} of {thousandths(row.gpu_milli_min)}"

    @display(description="Pending reason")
    def pending_reason(self, row: Workload) -> Any:
        blockers = (row.explanation or {}).get("blockers") or []
        return render_table(
            ("Reason", "Message"),
            [(token_to_words(blocker.get("reason") or ""), blocker.get("message")) for blocker in blockers],
        )

    @display(description="Smallest change")
    def smallest_change(self, row: Workload) -> str:
        """Describe the smallest change that would let the workload start, or explain why there is none."""
        try:
            return unredacted_smallest_change(row)
        except RateLimited as error:
            return error.detail

    @display(description="Document")
    def document(self, row: Workload) -> Any:
        return render_json(row.spec)

    cancel = bulk_action(
        "Cancel", "cancelled", lambda actor, row: workloads.cancel(actor=actor, workload=row)
    )
    suspend = bulk_action(
        "Suspend", "suspended", lambda actor, row: workloads.suspend(actor=actor, workload=row)
    )
    resume = bulk_action("Resume", "resumed", lambda actor, row: workloads.resume(actor=actor, workload=row))


@admin.register(Pod)
class PodAdmin(ReadOnlyModelAdmin):
    list_display = ("name", "workload", "run", "node", "state", "since", "exit_code", "message")
    list_filter = (
        ("state", ChoicesDropdownFilter),
        ("node__pool", RelatedDropdownFilter),
        ("since", TimeRangeFilter),
    )
    list_select_related = ("workload", "node")
    search_fields = ("workload__name", "node__name", "role")
    search_help_text = "Workload, node or role"
