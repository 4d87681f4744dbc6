"""Admin pages for quotas."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from unfold.contrib.filters.admin import RelatedDropdownFilter
from unfold.decorators import display
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from berth.server.web.admin_site.base import PlatformModelAdmin, actor
from berth.server.web.numbers import NO_VALUE, thousandths
from projects.models import Quota
from projects.services import quotas


def _amount_field(label: str, kind: Any = forms.FloatField, **options: Any) -> Any:
    widget = UnfoldAdminDecimalFieldWidget(attrs={"placeholder": "∞"})
    return kind(label=label, required=False, min_value=0, widget=widget, **options)


class QuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form for a quota in GPUs, CPU cores and MiB."""

    gpu = _amount_field("GPU quota", initial=0)
    limit_gpu = _amount_field("GPU limit")
    cpu = _amount_field("CPU quota (cores)")
    limit_cpu = _amount_field("CPU limit (cores)")
    memory_mib = _amount_field("Memory quota (MiB)", forms.IntegerField)
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
            self.fields["rank"].widget.attrs["placeholder"] = f"inherits {self.instance.owner.rank}"
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
        "rank_number",
        "updated_at",
    )
    columns = (
        "owner",
        "pool",
        "group",
        "gpu_milli",
        "cpu_milli",
        "memory_mib",
        "limit_gpu_milli",
        "limit_cpu_milli",
        "limit_memory_mib",
        "weight_gpu",
        "weight_cpu",
        "weight_memory",
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
            {
                "fields": ("gpu", "limit_gpu", "cpu", "limit_cpu", "memory_mib", "limit_memory_mib"),
                "description": "An empty field means unlimited (∞).",
            },
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
            pool=obj.pool_or_group,
            values=form.values(),
            expected_version=obj.version if change else 0,
        )
        obj.pk = stored.pk

    def delete_model(self, request: HttpRequest, obj: Quota) -> None:
        quotas.remove_quota(actor=actor(request), quota=obj)

    def view_on_site(self, row: Quota) -> str:
        return reverse("quotas") if row.pool is None else f"{reverse('quotas')}?pool={row.pool.name}"

    def row_class(self, row: Quota) -> str:
        """Return the CSS class that indents projects below their departments, as on the quota page."""
        return "group" if row.project is None else "child"

    @display(description="Owner")
    def owner(self, row: Quota) -> str:
        return str(row.owner)

    @display(description="Part of")
    def part_of(self, row: Quota) -> str:
        return NO_VALUE if row.project is None else row.project.department.name

    @display(description="GPU quota", ordering="gpu_milli")
    def gpus(self, row: Quota) -> str:
        return thousandths(row.gpu_milli)

    @display(description="GPU limit", ordering="limit_gpu_milli")
    def limit(self, row: Quota) -> str:
        return thousandths(row.limit_gpu_milli)

    @display(description="Rank", ordering="rank")
    def rank_number(self, row: Quota) -> str:
        """Return the quota's rank, or the owner's rank if the quota has none."""
        return str(row.owner.rank if row.rank is None else row.rank)
