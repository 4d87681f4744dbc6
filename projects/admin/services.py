"""Read-only admin pages for inference services."""

from typing import Any

from django.contrib import admin
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from berth.server.web.admin_site.base import ReadOnlyModelAdmin, render_table
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from projects.models import InferenceEngine, ScaleRequest, Scaling, Service


@admin.register(Service)
class ServiceAdmin(ReadOnlyModelAdmin):
    list_display = ("workload", "model_name", "initial_engines", "weight_version", "created_at", "ended_at")
    list_filter = (("created_at", TimeRangeFilter), ("model_name", FieldTextFilter))
    search_fields = ("workload__name", "workload__project__name", "model_name")
    search_help_text = "Workload, project or model"
    page_in_berth = "services"
    list_select_related = ("workload__project",)


@admin.register(InferenceEngine)
class EngineAdmin(ReadOnlyModelAdmin):
    list_display = ("name", "service", "origin", "state", "url", "is_healthy", "since", "failure")
    list_filter = ("state", "origin", ("created_at", TimeRangeFilter))
    search_fields = ("service__workload__name", "url")
    search_help_text = "Workload or URL"
    page_in_berth = "services"
    list_select_related = ("service__workload",)


@admin.register(ScaleRequest)
class ScaleRequestAdmin(ReadOnlyModelAdmin):
    list_display = ("created_at", "service", "direction", "status", "num_replicas", "requested_by", "failure")
    list_display_links = ("service",)
    list_filter = ("direction", "status", "by_autoscaler", ("created_at", TimeRangeFilter))
    search_fields = ("service__workload__name", "requested_by", "error_message")
    search_help_text = "Workload, user or error"
    page_in_berth = "services"
    list_select_related = ("service__workload",)
    readonly_fields = ("status_history",)

    @display(description="Status history")
    def status_history(self, row: ScaleRequest) -> Any:
        return render_table(
            ("Time", "Status", "Message"), [(s.at, s.status, s.message) for s in row.steps.all()]
        )


@admin.register(Scaling)
class ScalingAdmin(ReadOnlyModelAdmin):
    list_display = ("triggered_at", "service", "action", "from_engines", "to_engines", "status", "reason")
    list_display_links = ("service",)
    list_filter = ("action", "status", ("triggered_at", TimeRangeFilter))
    search_fields = ("service__workload__name", "reason")
    search_help_text = "Workload or reason"
    page_in_berth = "services"
    list_select_related = ("service__workload",)
