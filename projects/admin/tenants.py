"""Admin pages for departments, projects and quotas."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from unfold.contrib.filters.admin import (
    RelatedDropdownFilter,
)
from unfold.decorators import display
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from berth.server.web.admin_site.base import PlatformModelAdmin, actor
from berth.server.web.numbers import NO_VALUE, thousandths
from pools.admin import SecretAdmin
from pools.web.duration_field import DurationField
from projects.models import (
    Department,
    Project,
    ProjectSecret,
    Quota,
)
from projects.services import quotas, tenants

MIN_RUNTIMES = ("Minimum runtimes", {"fields": ("reclaim_min_runtime", "preempt_min_runtime")})


class TenantForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for a department or project, with durations such as "30 min"."""

    reclaim_min_runtime = DurationField(
        label="Reclaim",
        required=False,
        help_text="For example, 30 min. Leave empty to inherit.",
        widget=UnfoldAdminTextInputWidget(),
    )
    preempt_min_runtime = DurationField(
        label="Preemption",
        required=False,
        help_text="For example, 30 min. Leave empty to inherit.",
        widget=UnfoldAdminTextInputWidget(),
    )


@admin.register(Department)
class DepartmentAdmin(PlatformModelAdmin):
    list_display = ("name", "title", "rank", "created_at")
    search_fields = ("name", "title")
    search_help_text = "Name or title"
    page_in_berth = "quotas"
    form = TenantForm
    fieldsets = (("Department", {"fields": ("name", "title", "rank")}), MIN_RUNTIMES)

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
    list_filter = (("department", RelatedDropdownFilter),)
    list_select_related = ("department",)
    search_fields = ("name", "title", "department__name")
    search_help_text = "Name, title or department"
    page_in_berth = "quotas"
    form = TenantForm
    fieldsets = (("Project", {"fields": ("department", "name", "title", "rank")}), MIN_RUNTIMES)

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


def _amount_field(label: str, kind: Any = forms.FloatField, **options: Any) -> Any:
    widget = UnfoldAdminDecimalFieldWidget(attrs={"placeholder": "unlimited"})
    return kind(label=label, required=False, min_value=0, widget=widget, **options)


class QuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for a quota in GPUs, CPU cores and MiB."""

    gpu = _amount_field("GPUs", initial=0)
    limit_gpu = _amount_field("GPU limit")
    cpu = _amount_field("CPU cores")
    limit_cpu = _amount_field("CPU limit (cores)")
    memory_mib = _amount_field("Memory (MiB)", forms.IntegerField)
    limit_memory_mib = _amount_field("Memory limit (MiB)", forms.IntegerField)

    class Meta:
        model = Quota
        fields = (
            "department",
            "project",
            "pool",
            "group",
            "over_quota",
            "rank",
            "weight_gpu",
            "weight_cpu",
            "weight_memory",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            values = quotas.quota_values(self.instance)
            self.initial.update({key: values[key] for key in ("gpu", "cpu", "memory_mib")})
            self.initial.update({f"limit_{key}": amount for key, amount in values["limit"].items()})

    def values(self) -> dict[str, Any]:
        data = self.cleaned_data
        return {
            **{key: data[key] for key in ("gpu", "cpu", "memory_mib", "over_quota", "rank")},
            "limit": {key: data[f"limit_{key}"] for key in ("gpu", "cpu", "memory_mib")},
            "weight": {
                "gpu": data["weight_gpu"],
                "cpu": data["weight_cpu"],
                "memory_mib": data["weight_memory"],
            },
        }


@admin.register(Quota)
class QuotaAdmin(PlatformModelAdmin):
    form = QuotaForm
    list_display = (
        "owner",
        "part_of",
        "pool",
        "group",
        "gpus",
        "limit",
        "weight_gpu",
        "over_quota",
        "rank",
        "updated_at",
    )
    ordering = (
        "pool__name",
        "group__name",
        Coalesce("department__name", "project__department__name"),
        F("project__name").asc(nulls_first=True),
    )
    fieldsets = (
        ("Owner", {"fields": ("department", "project", "pool", "group")}),
        (
            "Quota and limits",
            {"fields": ("gpu", "limit_gpu", "cpu", "limit_cpu", "memory_mib", "limit_memory_mib")},
        ),
        (
            "Sharing beyond the quota",
            {"fields": ("over_quota", "rank", "weight_gpu", "weight_cpu", "weight_memory")},
        ),
    )
    list_filter = (
        ("pool", RelatedDropdownFilter),
        ("group", RelatedDropdownFilter),
        ("department", RelatedDropdownFilter),
        "over_quota",
    )
    list_select_related = ("pool", "group", "department", "project__department")
    search_fields = ("project__name", "department__name")
    search_help_text = "Department or project"
    page_in_berth = "quotas"

    def get_readonly_fields(self, request: HttpRequest, obj: Quota | None = None) -> tuple[str, ...]:
        return ("department", "project", "pool", "group") if obj else ()

    def save_model(self, request: HttpRequest, obj: Quota, form: QuotaForm, change: bool) -> None:
        stored = quotas.set_quota(
            actor=actor(request),
            owner=obj.owner,
            pool=obj.place,
            values=form.values(),
            expected_version=obj.version if change else 0,
        )
        obj.pk = stored.pk

    def delete_model(self, request: HttpRequest, obj: Quota) -> None:
        quotas.remove_quota(actor=actor(request), quota=obj)

    @display(description="Owner")
    def owner(self, row: Quota) -> str:
        return str(row.owner)

    @display(description="Part of")
    def part_of(self, row: Quota) -> str:
        return NO_VALUE if row.project is None else row.project.department.name

    @display(description="GPUs", ordering="gpu_milli")
    def gpus(self, row: Quota) -> str:
        return thousandths(row.gpu_milli)

    @display(description="GPU limit", ordering="limit_gpu_milli")
    def limit(self, row: Quota) -> str:
        return thousandths(row.limit_gpu_milli)
