"""Admin pages for departments, projects and quotas."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.contrib.filters.admin import (
    RelatedDropdownFilter,
)
from unfold.decorators import display

from berth.server.web.admin_site.base import PlatformModelAdmin, actor
from berth.server.web.numbers import thousandths
from pools.admin import SecretAdmin
from projects.models import (
    Department,
    Project,
    ProjectSecret,
    Quota,
)
from projects.services import quotas, tenants

MIN_RUNTIME_FIELDS = ("reclaim_min_runtime", "preempt_min_runtime")


@admin.register(Department)
class DepartmentAdmin(PlatformModelAdmin):
    list_display = ("name", "title", "rank", "created_at")
    search_fields = ("name", "title")
    fields: tuple[str, ...] = ("name", "title", "rank", *MIN_RUNTIME_FIELDS)

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
    fields: tuple[str, ...] = ("department", "name", "title", "rank", *MIN_RUNTIME_FIELDS)

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


class QuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for a quota in GPUs, CPU cores and MiB."""

    gpu = forms.FloatField(
        label="GPUs", required=False, min_value=0, help_text="Leave empty for an unlimited quota.", initial=0
    )
    limit_gpu = forms.FloatField(
        label="GPU limit", required=False, min_value=0, help_text="Leave empty for no limit."
    )
    cpu = forms.FloatField(
        label="CPU cores", required=False, min_value=0, help_text="Leave empty for an unlimited quota."
    )
    limit_cpu = forms.FloatField(
        label="CPU limit", required=False, min_value=0, help_text="Leave empty for no limit."
    )
    memory_mib = forms.IntegerField(
        label="Memory (MiB)", required=False, min_value=0, help_text="Leave empty for an unlimited quota."
    )
    limit_memory_mib = forms.IntegerField(label="Memory limit (MiB)", required=False, min_value=0)

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
        "pool",
        "group",
        "gpus",
        "limit",
        "weight_gpu",
        "over_quota",
        "rank",
        "updated_at",
    )
    list_filter = (
        ("pool", RelatedDropdownFilter),
        ("group", RelatedDropdownFilter),
        ("department", RelatedDropdownFilter),
        "over_quota",
    )
    list_select_related = ("pool", "group", "department", "project")
    search_fields = ("project__name", "department__name")

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

    @display(description="GPUs", ordering="gpu_milli")
    def gpus(self, row: Quota) -> str:
        return thousandths(row.gpu_milli)

    @display(description="GPU limit", ordering="limit_gpu_milli")
    def limit(self, row: Quota) -> str:
        return "none" if row.limit_gpu_milli is None else thousandths(row.limit_gpu_milli)
