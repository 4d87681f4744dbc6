"""Admin pages for departments and projects."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from unfold.contrib.filters.admin import RelatedDropdownFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from berth.server.web.admin_site.base import PlatformModelAdmin, actor
from pools.admin import SecretAdmin
from pools.web.duration_field import DurationField
from projects.models import (
    Department,
    Project,
    ProjectSecret,
)
from projects.services import tenants
from projects.web.quotas.min_runtimes import MIN_RUNTIMES, set_min_runtime_help
from projects.web.quotas.tenants import OVERRIDDEN_RANK


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for a department or project.

    Duration fields accept units. An empty duration field shows the value that it inherits.
    """

    reclaim_min_runtime = DurationField(
        label="Min runtime before reclaim",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"size": 10}),
    )
    preempt_min_runtime = DurationField(
        label="Min runtime before preemption",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"size": 10}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "rank" in self.fields:
            self.fields["rank"].help_text += f" {OVERRIDDEN_RANK}"
        owner = self.instance if self.instance.pk else None
        for name in MIN_RUNTIMES:
            if name in self.fields:
                set_min_runtime_help(self.fields[name], name, owner)


MIN_RUNTIME_FIELDS = ("Minimum runtimes", {"fields": tuple(MIN_RUNTIMES)})


@admin.register(Department)
class DepartmentAdmin(PlatformModelAdmin):
    list_display = ("name", "title", "rank", "created_at")
    columns = ("name", "title", "rank", "reclaim_min_runtime", "preempt_min_runtime", "created_at")
    search_fields = ("name", "title")
    search_help_text = "Name or title"
    page_in_berth = "quotas"
    form = TenantForm
    fieldsets = (("Department", {"fields": ("name", "title", "rank")}), MIN_RUNTIME_FIELDS)

    def view_on_site(self, row: Department) -> str:
        return reverse("tenant", args=["departments", row.name])

    def get_readonly_fields(self, request: HttpRequest, obj: Department | None = None) -> tuple[str, ...]:
        return ("name",) if obj else ()

    def save_model(
        self, request: HttpRequest, obj: Department, form: "forms.ModelForm[Department]", change: bool
    ) -> None:
        if change:
            changes = {name: form.cleaned_data[name] for name in form.changed_data}
            tenants.edit_department(actor=actor(request), department=obj, changes=changes)
        else:
            obj.pk = tenants.create_department(actor=actor(request), **form.cleaned_data).pk

    def delete_model(self, request: HttpRequest, obj: Department) -> None:
        tenants.delete_department(actor=actor(request), department=obj)


@admin.register(Project)
class ProjectAdmin(PlatformModelAdmin):
    list_display = ("name", "department", "title", "rank", "created_at")
    columns = (
        "name",
        "department",
        "title",
        "rank",
        "reclaim_min_runtime",
        "preempt_min_runtime",
        "created_at",
    )
    list_filter = (("department", RelatedDropdownFilter),)
    list_select_related = ("department",)
    search_fields = ("name", "title", "department__name")
    search_help_text = "Name, title or department"
    page_in_berth = "quotas"
    form = TenantForm
    fieldsets = (("Project", {"fields": ("department", "name", "title", "rank")}), MIN_RUNTIME_FIELDS)

    def view_on_site(self, row: Project) -> str:
        return reverse("tenant", args=["projects", row.name])

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        return ("name", "department") if obj else ()

    def save_model(
        self, request: HttpRequest, obj: Project, form: "forms.ModelForm[Project]", change: bool
    ) -> None:
        if change:
            changes = {name: form.cleaned_data[name] for name in form.changed_data}
            tenants.edit_project(actor=actor(request), project=obj, changes=changes)
        else:
            obj.pk = tenants.create_project(actor=actor(request), **form.cleaned_data).pk

    def delete_model(self, request: HttpRequest, obj: Project) -> None:
        tenants.delete_project(actor=actor(request), project=obj)


@admin.register(ProjectSecret)
class ProjectSecretAdmin(SecretAdmin):
    list_display = ("name", "project", "kind", "registry", "username", "updated_at", "updated_by")
    list_select_related = ("project",)
    columns = ("name", "project_id", "kind", "registry", "username", "updated_at", "updated_by")
