"""Admin pages for allocations, reservations, fair shares and usage."""

from django.contrib import admin
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import FieldTextFilter, RelatedDropdownFilter
from unfold.decorators import display

from berth.core.wording.words import format_gpu_time
from berth.server.web.admin_site.base import ReadOnlyModelAdmin, render_table
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import thousandths
from scheduler.models import Allocation, QueueStatus, Reservation, Usage, UsageHour
from scheduler.reports.fair_share.trace import UNITS, unredacted_share_traces


@admin.register(Allocation)
class AllocationAdmin(ReadOnlyModelAdmin):
    list_display = ("pod", "node", "devices", "gpus", "bound_at", "released_at")
    list_filter = (("node__pool", RelatedDropdownFilter), ("bound_at", TimeRangeFilter))
    search_fields = ("pod__workload__name", "node__name")
    search_help_text = "Workload or node"
    list_select_related = ("pod__workload", "node")

    @display(description="GPUs")
    def gpus(self, row: Allocation) -> str:
        return thousandths(row.gpu_milli_total)


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyModelAdmin):
    list_display = ("workload", "role", "index", "node", "devices", "since", "expires_at")
    list_filter = (("node__pool", RelatedDropdownFilter),)
    search_fields = ("workload__name", "node__name")
    search_help_text = "Workload or node"
    page_in_berth = "queue"
    list_select_related = ("workload", "node")


class QueueAdmin(ReadOnlyModelAdmin):
    """Base class of read-only admin pages with one row per queue. Departments come before their projects."""

    ordering = (
        "pool__name",
        Coalesce("department__name", "project__department__name"),
        F("project__name").asc(nulls_first=True),
    )
    list_filter = (("pool", RelatedDropdownFilter),)
    list_select_related = ("pool", "project", "department")

    def row_class(self, row: QueueStatus | Usage) -> str:
        return "group" if row.project is None else "child"


@admin.register(QueueStatus)
class QueueStatusAdmin(QueueAdmin):
    list_display = ("owner", "pool", "gpu_share", "gpu_allocated", "gpu_reserved", "gpu_requested", "at")
    search_fields = ("project__name", "department__name")
    search_help_text = "Department or project"
    page_in_berth = "fair-share"
    readonly_fields = (
        "owner",
        "gpu_share",
        "gpu_allocated",
        "gpu_reserved",
        "gpu_requested",
        "share_explanation",
    )
    fieldsets = (
        (
            "Queue",
            {
                "fields": (
                    "owner",
                    "pool",
                    "at",
                    "gpu_share",
                    "gpu_allocated",
                    "gpu_reserved",
                    "gpu_requested",
                )
            },
        ),
        ("Fair share", {"fields": ("share_explanation",), "classes": ("unlabelled",)}),
    )

    @display(description="Queue")
    def owner(self, row: QueueStatus) -> str:
        return str(row.project or row.department)

    @display(description="Fair share (GPUs)")
    def gpu_share(self, row: QueueStatus) -> str:
        return thousandths(row.share[0])

    @display(description="Allocated (GPUs)")
    def gpu_allocated(self, row: QueueStatus) -> str:
        return thousandths(row.allocated[0])

    @display(description="Reserved (GPUs)")
    def gpu_reserved(self, row: QueueStatus) -> str:
        return thousandths(row.reserved[0])

    @display(description="Requested (GPUs)")
    def gpu_requested(self, row: QueueStatus) -> str:
        return thousandths(row.requested[0])

    @display(description="Explanation")
    def share_explanation(self, row: QueueStatus) -> SafeString:
        owner = row.project or row.department
        assert owner is not None, "a queue status has an owner"
        kind = "department" if row.project is None else "project"
        own = [trace for trace in unredacted_share_traces(owner, row.pool) if trace.kind == kind]
        return render_table(
            ("Resource", "Explanation"),
            [(UNITS[trace.resource], line) for trace in own for line in trace.explanation],
        )


@admin.register(Usage)
class UsageAdmin(QueueAdmin):
    list_display = ("owner", "pool", "settled_at", "used", "rate")
    page_in_berth = "fair-share"

    @display(description="Queue")
    def owner(self, row: Usage) -> str:
        return str(row.project or row.department)


@admin.register(UsageHour)
class UsageHourAdmin(ReadOnlyModelAdmin):
    list_display = ("hour", "department_name", "project_name", "user_name", "pool_name", "gpu_time")
    list_filter = (
        ("hour", TimeRangeFilter),
        ("pool_name", FieldTextFilter),
        ("project_name", FieldTextFilter),
        ("user_name", FieldTextFilter),
    )
    ordering = ("-hour", "project_name", "user_name")
    search_fields = ("project_name", "user_name")
    search_help_text = "Project or user"
    page_in_berth = "usage"

    @display(description="GPU time", ordering="gpu_milli_seconds")
    def gpu_time(self, row: UsageHour) -> str:
        return format_gpu_time(row.gpu_milli_seconds / 1000)
