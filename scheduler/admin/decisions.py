"""Admin pages for scheduler decisions: evictions and cycles."""

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
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter
from unfold.decorators import action, display

from berth.core.errors import Conflict
from berth.core.wording.words import format_gpu_time
from berth.server.web.admin_site.base import (
    ReadOnlyModelAdmin,
    render_json,
    render_list,
    render_table,
)
from berth.server.web.admin_site.links import link_to, link_to_existing
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import NO_VALUE, milliseconds, thousandths
from pools.models import NodePool
from projects.models import Department, Project, Workload
from scheduler.admin.plan import PLAN_HEADERS, PlanLinks, plan_rows
from scheduler.api.evictions import stream_csv
from scheduler.models import Cycle, Eviction
from scheduler.reports.evictions.rendering import KIND_TITLES, rule_sentence
from scheduler.reports.replay import ReplayResult, replay
from scheduler.reports.triggers import describe_trigger
from scheduler.reports.visibility import UNRESTRICTED

MAX_DIFFERENCES_SHOWN = 20  # maximum number of differences on the page; `berth replay` lists all
KINDS = {
    "reclaim": "warning",
    "preempt": "warning",
    "stale_gang": "danger",
    "shrink": "info",
    "drain": "info",
    "cluster": "warning",
}
MAX_STEPS_SHOWN = 200
SIDES = (("victim", "Victim"), ("preemptor", "Preemptor"))
QUEUE_NUMBERS = ("Quota", "Fair share", "Allocated before", "Allocated after", "Decayed usage")
QUEUE_HEADERS = ("Role", "Queue", *QUEUE_NUMBERS)


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
        "rule_sentence",
    )
    list_display_links = ("victim_workload",)
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
    page_in_berth = "evictions"
    search_help_text = "Workload, project or rule"
    readonly_fields = (
        "rule_sentence",
        "kind_title",
        "gpus",
        "lost_work",
        "extent",
        "workloads",
        "queues",
        "rejected_alternatives",
        "pod_names",
        "pool_link",
        "cycle_link",
        "raw_numbers",
    )
    fieldsets = (
        (
            "Eviction",
            {
                "fields": (
                    "rule_sentence",
                    "rejected_alternatives",
                    ("at", "kind_title", "cycle_link"),
                    ("pool_link", "gpus", "lost_work"),
                    ("extent", "pod_names"),
                )
            },
        ),
        ("Workloads", {"fields": ("workloads",), "classes": ("unlabelled",)}),
        ("Queues (GPUs)", {"fields": ("queues",), "classes": ("unlabelled",)}),
        ("Raw data", {"fields": ("raw_numbers",), "classes": ("collapse", "unlabelled")}),
    )

    @action(description="Download CSV")
    def download(self, request: HttpRequest, queryset: QuerySet[Eviction]) -> HttpResponseBase:
        return stream_csv(Request(request), queryset.order_by("-id"), UNRESTRICTED)

    @display(description="Rule", ordering="rule")
    def rule_sentence(self, row: Eviction) -> str:
        return rule_sentence(row, row.rule)

    @display(description="Kind", label=KINDS)
    def kind_label(self, row: Eviction) -> tuple[str, str]:
        return row.kind, KIND_TITLES[row.kind]

    @display(description="Kind")
    def kind_title(self, row: Eviction) -> str:
        return KIND_TITLES[row.kind]

    @display(description="Victim")
    def victim_workload(self, row: Eviction) -> str:
        return f"{row.project_name}/{row.workload_name}"

    @display(description="Preemptor")
    def preemptor_workload(self, row: Eviction) -> str:
        return f"{row.preemptor_project_name}/{row.preemptor_name}" if row.preemptor_name else NO_VALUE

    @display(description="Extent")
    def extent(self, row: Eviction) -> str:
        return "entire workload" if row.entire_workload else "some of its pods"

    @display(description="Workloads")
    def workloads(self, row: Eviction) -> SafeString:
        rows = [
            (
                "Victim",
                link_to(Workload, row.workload_id, row.workload_name),
                link_to(Project, row.project_id, row.project_name),
                link_to(Department, row.department_id, row.department_name),
            )
        ]
        if row.preemptor_name:
            department = Department.objects.filter(projects=row.preemptor_project_id).first()
            rows.append(
                (
                    "Preemptor",
                    link_to(Workload, row.preemptor_id, row.preemptor_name),
                    link_to(Project, row.preemptor_project_id, row.preemptor_project_name),
                    link_to(Department, department.pk, department.name) if department else NO_VALUE,
                )
            )
        return render_table(("Role", "Workload", "Project", "Department"), rows)

    @display(description="Queues (GPUs)")
    def queues(self, row: Eviction) -> SafeString:
        rows = [[title, *line] for side, title in SIDES for line in _queue_rows(row, side)]
        return render_table(QUEUE_HEADERS, rows, numbers=QUEUE_NUMBERS)

    @display(description="GPUs", ordering="gpu_milli")
    def gpus(self, row: Eviction) -> str:
        return thousandths(row.gpu_milli)

    @display(description="Work lost", ordering="lost_gpu_seconds")
    def lost_work(self, row: Eviction) -> str:
        return format_gpu_time(row.lost_gpu_seconds)

    @display(description="Alternatives considered")
    def rejected_alternatives(self, row: Eviction) -> SafeString:
        return render_list(row.numbers.get("rejected") or [])

    @display(description="Pods")
    def pod_names(self, row: Eviction) -> str:
        return ", ".join(f"{pod['role']}-{pod['index']}" for pod in row.pods if isinstance(pod, dict))

    @display(description="Cycle")
    def cycle_link(self, row: Eviction) -> str:
        if row.cycle is None or not Cycle.objects.filter(pk=row.cycle).exists():
            return "no longer stored"
        return link_to_existing(Cycle, row.cycle, f"cycle {row.cycle}")

    @display(description="Node pool")
    def pool_link(self, row: Eviction) -> str:
        return link_to(NodePool, row.pool_id, row.pool_name)

    def view_on_site(self, row: Eviction) -> str:
        return reverse("eviction", args=[row.pk])

    @display(description="Numbers")
    def raw_numbers(self, row: Eviction) -> SafeString:
        return render_json(row.numbers)


@admin.register(Cycle)
class CycleAdmin(ReadOnlyModelAdmin):
    list_display = (
        "cycle",
        "at",
        "trigger_title",
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
    search_help_text = "Cycle or trigger"
    page_in_berth = "decisions"
    readonly_fields = (
        "trigger_title",
        "duration",
        "step_durations",
        "decisions",
        "plan_table",
        "stored_plan",
        "notes_table",
    )
    columns = (
        "id", "at", "epoch", "trigger", "observe_ms", "decide_ms", "commit_ms", "nodes", "workloads",
        "pending", "bundles", "applied", "stale", "evictions", "trials",
    )  # fmt: skip
    fieldsets = (
        (
            "Cycle",
            {
                "fields": (
                    ("at", "trigger_title", "duration"),
                    ("nodes", "workloads", "pending"),
                    ("decisions", "evictions", "trials"),
                    "notes_table",
                )
            },
        ),
        ("Decisions", {"fields": ("plan_table",), "classes": ("unlabelled",)}),
        (
            "Technical details",
            {"fields": ("step_durations", "epoch", "engine", "stored_plan"), "classes": ("collapse",)},
        ),
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

    @display(description="Cycle", ordering="id")
    def cycle(self, row: Cycle) -> str:
        return str(row)

    @display(description="Duration", ordering="decide_ms")
    def duration(self, row: Cycle) -> str:
        return milliseconds(row.observe_ms + row.decide_ms + row.commit_ms)

    @display(description="Steps")
    def step_durations(self, row: Cycle) -> str:
        read, decide, commit = map(milliseconds, (row.observe_ms, row.decide_ms, row.commit_ms))
        return f"{read} to read, {decide} to decide, {commit} to commit"

    @display(description="Trigger", ordering="trigger")
    def trigger_title(self, row: Cycle) -> str:
        return describe_trigger(row.trigger)

    @display(description="Decisions")
    def decisions(self, row: Cycle) -> str:
        dropped = f", {row.stale} outdated and dropped" if row.stale else ""
        return f"{row.applied} applied{dropped}"

    @display(description="Decisions")
    def plan_table(self, row: Cycle) -> SafeString:
        bundles = (row.plan or {}).get("bundles", [])
        links = PlanLinks(row)
        rows = [row for bundle in bundles for row in plan_rows(bundle, links)]
        table = render_table(PLAN_HEADERS, rows[:MAX_STEPS_SHOWN])
        left = len(rows) - MAX_STEPS_SHOWN
        return table if left <= 0 else format_html("{}<p>{} more rows in the stored plan.</p>", table, left)

    def view_on_site(self, row: Cycle) -> str:
        return reverse("decision", args=[row.pk])

    @display(description="Stored plan")
    def stored_plan(self, row: Cycle) -> SafeString:
        return render_json(row.plan)

    @display(description="Inconsistencies")
    def notes_table(self, row: Cycle) -> SafeString:
        return render_list(row.notes)


def _difference_message(result: ReplayResult) -> SafeString:
    shown = result.differences[:MAX_DIFFERENCES_SHOWN]
    more = result.differing - len(shown)
    lines = [*shown, *([f"and {more} more"] if more else [])]
    return format_html("{}{}", result.summary, format_html_join("", "<br>{}", ((line,) for line in lines)))


def _queue_rows(row: Eviction, side: str) -> Iterator[list[Any]]:
    for queue in row.numbers.get(side) or []:
        amounts = [queue.get(key) or {} for key in ("quota", "share", "allocated_before", "allocated_after")]
        gpus = (thousandths(amount.get("gpu")) for amount in amounts)
        yield [queue.get("queue", ""), *gpus, f"{queue.get('usage') or 0:.3f}"]
