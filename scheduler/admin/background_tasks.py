"""Read-only admin pages for background tasks. Platform admins can run failed tasks again."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_q.admin import resubmit_task
from django_q.models import Failure, OrmQ, Schedule, Success
from unfold.decorators import action, display

from berth.server.web.admin_site.base import ReadOnlyModelAdmin
from berth.server.web.admin_site.time_filter import TimeRangeFilter
from berth.server.web.numbers import duration

for model in (Failure, OrmQ, Schedule, Success):  # django_q registers these models for superusers only
    admin.site.unregister(model)
    # Model names are in lower case, because they are used within sentences.
    for name in ("verbose_name", "verbose_name_plural"):
        setattr(model._meta, name, str(getattr(model._meta, name)).lower())


class EndedTaskAdmin(ReadOnlyModelAdmin):
    list_display = ("name", "func", "started", "stopped", "runtime")
    list_filter = (("started", TimeRangeFilter),)
    search_fields = ("name", "func", "group")
    search_help_text = "Name, function or group"
    columns = ("name", "func", "group", "started", "stopped", "success")
    readonly_fields = ("result_text",)
    fieldsets = (
        ("Task", {"fields": ("name", "func", "group", "started", "stopped", "attempt_count")}),
        ("Result", {"fields": ("result_text",), "classes": ("unlabelled",)}),
    )

    @display(description="Runtime")
    def runtime(self, row: Any) -> str:
        return duration((row.stopped - row.started).total_seconds())

    @display(description="Result")
    def result_text(self, row: Any) -> SafeString:
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', str(row.result))


@admin.register(Success)
class SuccessAdmin(EndedTaskAdmin):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Success]:
        rows: QuerySet[Success] = super().get_queryset(request)
        return rows.filter(success=True)


@admin.register(Failure)
class FailureAdmin(EndedTaskAdmin):
    empty_hint = "A task that fails appears here with its error, and can be run again."
    actions = ("run_again", "download")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Failure]:
        rows: QuerySet[Failure] = super().get_queryset(request)
        return rows.filter(success=False)

    @action(description="Run again")
    def run_again(self, request: HttpRequest, queryset: QuerySet[Failure]) -> None:
        rows = list(queryset)  # list the rows now, so that tasks that fail in the meantime are not deleted
        resubmit_task(self, request, rows)
        Failure.objects.filter(pk__in=[row.pk for row in rows]).delete()
        messages.success(request, f"{len(rows)} queued again.")


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyModelAdmin):
    """Read-only admin for periodic tasks. Berth registers these tasks when the scheduler starts."""

    list_display = ("name", "func", "schedule_type", "next_run")
    empty_hint = "The scheduler registers its periodic tasks when it starts."
    search_fields = ("name", "func")
    search_help_text = "Name or function"
    columns = ("name", "func", "schedule_type", "minutes", "next_run")
    exclude = ("args", "kwargs", "hook")


@admin.register(OrmQ)
class QueuedTaskAdmin(ReadOnlyModelAdmin):
    list_display = ("id", "name", "func", "lock")
    empty_hint = "Notifications and other background work appear here until a worker runs them."
    fields = ("name", "func", "group", "lock")
    readonly_fields = ("name", "func", "group")
    columns = ("id", "key", "lock")
