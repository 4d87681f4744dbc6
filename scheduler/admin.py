"""Admin pages for scheduler decisions: evictions, cycles, allocations and usage."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from rest_framework.request import Request
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter, RelatedDropdownFilter
from unfold.decorators import action, display

from berth.core.errors import Conflict
from berth.core.words import format_gpu_time, format_ranges, to_words
from berth.server.web.admin_site.base import ReadOnlyModelAdmin, render_json, render_table
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import milliseconds, thousandths
from scheduler.api.evictions import stream_csv
from scheduler.models import Allocation, Cycle, Eviction, QueueStatus, Reservation, Usage, UsageHour
from scheduler.reports.evictions.rendering import KIND_TITLES, render
from scheduler.reports.fair_share.trace import UNITS, full_share_trace
from scheduler.reports.replay import ReplayResult, replay
from scheduler.reports.visibility import UNRESTRICTED

MAX_DIFFERENCES_SHOWN = 20  # maximum number of differences on the page; `berth replay` lists all differences
KINDS = {
    "reclaim": "warning",
    "preempt": "warning",
    "stale_gang": "danger",
    "shrink": "info",
    "drain": "info",
    "cluster": "warning",
}
MAX_STEPS_SHOWN = 200
PLAN_HEADERS = ("Decision for", "Action", "Pool", "Step", "Workload", "Pods", "Node", "Devices")
SIDES = (("victim", "Victim"), ("preemptor", "Preemptor"))
QUEUE_HEADERS = (
    "Side",
    "Queue",
    "Quota",
    "Fair share",
    "Allocated before",
    "Allocated after",
    "Decayed usage",
)


@admin.register(Eviction)
class EvictionAdmin(ReadOnlyModelAdmin):
    list_display = (
        "at",
        "kind_label",
        "victim_workload",
        "preemptor_workload",
        "pool_name",
        "gpus",
        "lost_work",
        "rule",
    )
    list_display_links = ("at", "victim_workload")
    list_filter = (
        ("kind", ChoicesDropdownFilter),
        ("at", TimeRangeFilter),
        ("pool_name", FieldTextFilter),
        ("project_name", FieldTextFilter),
        ("department_name", FieldTextFilter),
        ("preemptor_project_name", FieldTextFilter),
        ("preemptor_name", FieldTextFilter),
        "entire_workload",
    )
    search_fields = ("workload_name", "preemptor_name", "project_name", "preemptor_project_name", "rule")
    search_help_text = "Workload, project or rule"
    date_hierarchy = "at"
    readonly_fields = (
        "summary_text",
        "kind_title",
        "gpus",
        "lost_work",
        "queues",
        "rejected_alternatives",
        "pod_names",
        "cycle_link",
        "raw_numbers",
    )
    fieldsets = (
        (
            "Eviction",
            {
                "fields": (
                    "summary_text",
                    "rule",
                    "queues",
                    "rejected_alternatives",
                    ("at", "kind_title", "pool_name"),
                    ("gpus", "lost_work", "entire_workload"),
                    "pod_names",
                    "cycle_link",
                )
            },
        ),
        ("Victim", {"fields": (("workload_name", "project_name", "department_name"),)}),
        ("Preemptor", {"fields": (("preemptor_name", "preemptor_project_name"),)}),
        ("Raw data", {"fields": ("raw_numbers",), "classes": ("collapse",)}),
    )

    @action(description="Download CSV")
    def download(self, request: HttpRequest, queryset: QuerySet[Eviction]) -> HttpResponseBase:
        return stream_csv(Request(request), queryset.order_by("-id"), UNRESTRICTED)

    @display(description="Kind", label=KINDS)
    def kind_label(self, row: Eviction) -> tuple[str, str]:
        return row.kind, KIND_TITLES[row.kind]

    @display(description="Kind")
    def kind_title(self, row: Eviction) -> str:
        return KIND_TITLES[row.kind]

    @display(description="Evicted")
    def victim_workload(self, row: Eviction) -> str:
        return f"{row.project_name}/{row.workload_name}"

    @display(description="Preempted by")
    def preemptor_workload(self, row: Eviction) -> str:
        return f"{row.preemptor_project_name}/{row.preemptor_name}" if row.preemptor_name else "none"

    @display(description="Summary")
    def summary_text(self, row: Eviction) -> str:
        return render(UNRESTRICTED, [row])[0].summary

    @display(description="Queues (GPUs)")
    def queues(self, row: Eviction) -> SafeString:
        rows = [[title, *line] for side, title in SIDES for line in _queue_lines(row, side)]
        return render_table(QUEUE_HEADERS, rows)

    @display(description="GPUs", ordering="gpu_milli")
    def gpus(self, row: Eviction) -> str:
        return thousandths(row.gpu_milli)

    @display(description="Work lost", ordering="lost_gpu_seconds")
    def lost_work(self, row: Eviction) -> str:
        return format_gpu_time(row.lost_gpu_seconds)

    @display(description="Alternatives considered")
    def rejected_alternatives(self, row: Eviction) -> SafeString:
        return render_table(("Reason",), [(reason,) for reason in row.numbers.get("rejected") or []])

    @display(description="Pods")
    def pod_names(self, row: Eviction) -> str:
        return ", ".join(f"{pod['role']}-{pod['index']}" for pod in row.pods if isinstance(pod, dict))

    @display(description="Cycle")
    def cycle_link(self, row: Eviction) -> str:
        if row.cycle is None or not Cycle.objects.filter(pk=row.cycle).exists():
            return "no longer stored"
        address = reverse("admin:scheduler_cycle_change", args=[row.cycle])
        return format_html('<a href="{}">cycle {}</a>', address, row.cycle)

    @display(description="Numbers")
    def raw_numbers(self, row: Eviction) -> SafeString:
        return render_json(row.numbers)


@admin.register(Cycle)
class CycleAdmin(ReadOnlyModelAdmin):
    list_display = (
        "id",
        "at",
        "trigger",
        "duration",
        "pending",
        "bundles",
        "applied",
        "stale",
        "evictions",
        "trials",
    )
    list_filter = (("at", TimeRangeFilter), ("trigger", FieldTextFilter))
    search_fields = ("id", "trigger")
    date_hierarchy = "at"
    readonly_fields = ("duration", "plan_table", "stored_plan", "notes_table")
    columns = (
        "id", "at", "epoch", "trigger", "observe_ms", "decide_ms", "commit_ms", "nodes", "workloads",
        "pending", "bundles", "applied", "stale", "evictions", "trials",
    )  # fmt: skip
    fieldsets = (
        (
            "Cycle",
            {"fields": (("at", "trigger"), ("epoch", "duration"), ("observe_ms", "decide_ms", "commit_ms"))},
        ),
        ("Snapshot", {"fields": (("nodes", "workloads", "pending"), "notes_table")}),
        ("Decisions", {"fields": (("bundles", "applied", "stale"), ("evictions", "trials"), "plan_table")}),
        ("Stored plan", {"fields": ("stored_plan",), "classes": ("collapse",)}),
    )

    actions_detail = ("replay_cycle",)

    @action(description="Replay cycle", url_path="replay")
    def replay_cycle(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        """Replay the stored snapshot with the current engine, without storing the result."""
        address = reverse("admin:scheduler_cycle_change", args=[object_id])
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            result = replay(get_object_or_404(Cycle, pk=object_id))
        except Conflict as error:
            messages.error(request, error.detail)
            return redirect(address)
        if result.identical:
            messages.success(request, result.summary)
        else:
            messages.warning(request, _difference_message(result))
        return redirect(address)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cycle]:
        rows: QuerySet[Cycle] = super().get_queryset(request)
        return rows.defer("snapshot", "plan")

    @display(description="Duration", ordering="decide_ms")
    def duration(self, row: Cycle) -> str:
        return milliseconds(row.observe_ms + row.decide_ms + row.commit_ms)

    @display(description="Plan")
    def plan_table(self, row: Cycle) -> SafeString:
        bundles = (row.plan or {}).get("bundles", [])
        rows = [row for bundle in bundles for row in _plan_rows(bundle)]
        table = render_table(PLAN_HEADERS, rows[:MAX_STEPS_SHOWN])
        left = len(rows) - MAX_STEPS_SHOWN
        return table if left <= 0 else format_html("{}<p>{} more rows in the stored plan.</p>", table, left)

    @display(description="Stored plan")
    def stored_plan(self, row: Cycle) -> SafeString:
        return render_json(row.plan)

    @display(description="Inconsistencies")
    def notes_table(self, row: Cycle) -> SafeString:
        return render_table(("Note",), [(note,) for note in row.notes])


@admin.register(Allocation)
class AllocationAdmin(ReadOnlyModelAdmin):
    list_display = ("pod", "node", "devices", "gpus", "bound_at", "released_at")
    list_filter = (("node__pool", RelatedDropdownFilter), ("bound_at", TimeRangeFilter))
    search_fields = ("pod__workload__name", "node__name")
    list_select_related = ("pod__workload", "node")

    @display(description="GPUs")
    def gpus(self, row: Allocation) -> str:
        return thousandths(row.gpu_milli_total)


@admin.register(Reservation)
class ReservationAdmin(ReadOnlyModelAdmin):
    list_display = ("workload", "role", "index", "node", "devices", "since", "expires_at")
    list_filter = (("node__pool", RelatedDropdownFilter),)
    search_fields = ("workload__name", "node__name")
    list_select_related = ("workload", "node")


@admin.register(QueueStatus)
class QueueStatusAdmin(ReadOnlyModelAdmin):
    list_display = ("owner", "pool", "gpu_share", "gpu_allocated", "gpu_reserved", "gpu_requested", "at")
    list_filter = (("pool", RelatedDropdownFilter),)
    search_fields = ("project__name", "department__name")
    list_select_related = ("pool", "project", "department")
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
            None,
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
        ("Fair share", {"fields": ("share_explanation",)}),
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
        own = [trace for trace in full_share_trace(owner, row.pool) if trace.kind == kind]
        return render_table(
            ("Resource", ""), [(UNITS[trace.resource], line) for trace in own for line in trace.explanation]
        )


@admin.register(Usage)
class UsageAdmin(ReadOnlyModelAdmin):
    list_display = ("owner", "pool", "settled_at", "used", "rate")
    list_filter = (("pool", RelatedDropdownFilter),)
    list_select_related = ("pool", "project", "department")

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
    search_fields = ("project_name", "user_name")

    @display(description="GPU time", ordering="gpu_milli_seconds")
    def gpu_time(self, row: UsageHour) -> str:
        return format_gpu_time(row.gpu_milli_seconds / 1000)


def _difference_message(result: ReplayResult) -> SafeString:
    shown = result.differences[:MAX_DIFFERENCES_SHOWN]
    more = result.differing - len(shown)
    lines = [*shown, *([f"and {more} more"] if more else [])]
    return format_html("{}{}", result.summary, format_html_join("", "<br>{}", ((line,) for line in lines)))


def _queue_lines(row: Eviction, side: str) -> Iterator[list[Any]]:
    """Yield the name, GPUs and decayed usage of each queue of the victim or the preemptor."""
    for queue in row.numbers.get(side) or []:
        amounts = [queue.get(key) or {} for key in ("quota", "share", "allocated_before", "allocated_after")]
        gpus = (thousandths(amount.get("gpu")) for amount in amounts)
        yield [queue.get("queue", ""), *gpus, queue.get("usage")]


def _plan_rows(bundle: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield one row for each group of pods with the same workload, role, step and node."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for step in bundle.get("steps", ()):
        key = (step.get("do", ""), step.get("workload", ""), step.get("role", ""), step.get("node", ""))
        groups.setdefault(key, []).append(step)
    for (step_kind, workload, role, node), steps in groups.items():
        indices = format_ranges(step["index"] for step in steps if "index" in step)
        devices = format_ranges(device for step in steps for device in step.get("devices") or ())
        yield (
            bundle.get("workload", ""), to_words(bundle.get("kind", "")), bundle.get("pool", ""),
            to_words(step_kind), workload, f"{role} {indices}".strip(), node, devices,
        )  # fmt: skip
