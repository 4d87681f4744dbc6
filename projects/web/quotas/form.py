"""Form for one quota."""

import json
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any

from django import forms
from django.utils import timezone

from berth.core.values.amounts import MILLI
from berth.server.web.forms import Form
from projects.models import Quota
from projects.models.tenants import PoolOrGroup, Tenant
from projects.services.quotas import parse_columns, quota_values
from projects.services.quotas.drafts import Draft, QuotaChangeDraft
from projects.services.quotas.values import MAX_AMOUNT, MAX_RANK, MAX_WEIGHT, SCALE
from projects.web.quotas.expiry import parse_expiry

# Resources with a limit, and the unit of each.
LIMITED = (("gpu", "GPUs"), ("cpu", "CPU cores"), ("memory_mib", "MiB"))
EDIT_PATH = "changes[0]"  # path of the quota in the form's draft
FIELDS = (
    "gpu",
    "limit_gpu",
    "weight",
    "rank",
    "cpu",
    "limit_cpu",
    "memory_mib",
    "limit_memory_mib",
    "over_quota",
)
FIELDS_BY_PATH = {
    "gpu": "gpu",
    "cpu": "cpu",
    "memory_mib": "memory_mib",
    "limit.gpu": "limit_gpu",
    "limit.cpu": "limit_cpu",
    "limit.memory_mib": "limit_memory_mib",
    "weight": "weight",
    "weight.gpu": "weight",
    "rank": "rank",
    "over_quota": "over_quota",
}
DRAFT_FIELDS_BY_PATH = {
    **FIELDS_BY_PATH,
    **{f"{EDIT_PATH}.set.{path}": name for path, name in FIELDS_BY_PATH.items()},
    "expires_at": "until",
}


def _amount_field(label: str, step: str) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"class": "short", "step": step, "min": "0", "placeholder": "∞"})
    return forms.FloatField(label=label, required=False, widget=widget)


class QuotaForm(Form):
    gpu = _amount_field("GPU quota", "any")
    limit_gpu = _amount_field("GPU limit", "any")
    weight = forms.FloatField(
        label="Weight",
        widget=forms.NumberInput(attrs={"class": "short", "step": "any", "min": "0"}),
        help_text="Relative share of over-quota capacity.",
    )
    rank = forms.IntegerField(
        label="Rank",
        required=False,
        widget=forms.NumberInput(attrs={"class": "short", "placeholder": "inherited"}),
    )
    cpu = _amount_field("CPU quota (cores)", "any")
    limit_cpu = _amount_field("CPU limit (cores)", "any")
    memory_mib = _amount_field("Memory quota (MiB)", "1")
    limit_memory_mib = _amount_field("Memory limit (MiB)", "1")
    over_quota = forms.BooleanField(label="Can exceed quota", required=False)
    comment = forms.CharField(label="Comment", required=False, max_length=500)
    until = forms.CharField(
        label="Expires",
        required=False,
        widget=forms.TextInput(attrs={"type": "datetime-local"}),
        help_text="The previous values are then restored. Permanent if empty.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput)
    seen = forms.JSONField(widget=forms.HiddenInput, required=False)  # values when the form was opened

    def clean(self) -> dict[str, Any]:
        for name in FIELDS:
            if sentence := _range_error(name, self.cleaned_data.get(name)):
                self.add_error(name, sentence)
        for name, unit in LIMITED:
            amount, limit = (self.cleaned_data.get(field) for field in (name, f"limit_{name}"))
            if amount is not None and limit is not None and amount > limit:
                maximum = f"{limit:,.10g}"
                message = f"{amount:,.10g} {unit} exceed the limit of {maximum}. "
                self.add_error(name, f"{message}Enter at most {maximum} or raise the limit.")
        return self.cleaned_data

    def values(self) -> dict[str, Any]:
        """Return the form's values as arguments for the quota service."""
        data = self.cleaned_data
        weight: Any = data["weight"]
        if "weight" in self.initial and weight == self.initial["weight"] and "weights" in self.initial:
            weight = self.initial["weights"]  # keep the separate weights of CPU and memory
        return {
            "gpu": data["gpu"],
            "cpu": data["cpu"],
            "memory_mib": _to_number_or_none(data["memory_mib"]),
            "limit": {
                "gpu": data["limit_gpu"],
                "cpu": data["limit_cpu"],
                "memory_mib": _to_number_or_none(data["limit_memory_mib"]),
            },
            "weight": weight,
            "rank": data["rank"],
            "over_quota": data["over_quota"],
        }

    def amount_pairs(self) -> Iterator[list[forms.BoundField]]:
        """Yield the quota and limit of each resource."""
        for name, _ in LIMITED:
            yield [self[name], self[f"limit_{name}"]]

    def other_fields(self) -> list[forms.BoundField]:
        """Return the visible fields that are not amounts or limits."""
        amounts = {field for name, _ in LIMITED for field in (name, f"limit_{name}")}
        return [field for field in self.visible_fields() if field.name not in amounts]

    def build_draft(self, owner: Tenant, pool: PoolOrGroup, zone: tzinfo) -> Draft:
        """Return a draft that sets this quota. Raises Invalid if a value is not valid."""
        expiry = parse_expiry(self.cleaned_data["until"], zone, timezone.now())
        change = QuotaChangeDraft(owner, pool, parse_columns(self.values()), EDIT_PATH)
        return Draft((change,), self.cleaned_data["comment"].strip(), expiry)


def _range_error(name: str, value: float | None) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if name == "rank":
        is_valid = -MAX_RANK <= value <= MAX_RANK
        allowed = f"-{MAX_RANK} to {MAX_RANK}, or leave the field empty to inherit the rank"
    elif name == "weight":
        is_valid, allowed = 0 <= value <= MAX_WEIGHT, f"0 to {MAX_WEIGHT:,.0f}"
    else:
        scale = SCALE[name.removeprefix("limit_")]
        is_valid = 0 <= value * scale <= MAX_AMOUNT and abs(round(value * scale) - value * scale) <= 1e-6
        step = "steps of 0.001" if scale == MILLI else "whole MiB"
        allowed = f"0 to {MAX_AMOUNT // scale:,} in {step}, or leave the field empty for unlimited"
    return "" if is_valid else f"{value:,.10g} is not valid. Enter {allowed}."


def initial_values(quota: Quota | None) -> dict[str, Any]:
    version = 0 if quota is None else quota.version
    values = (
        {"gpu": 0, "weight": 1, "over_quota": True} if quota is None else flatten_quota(quota_values(quota))
    )
    return {**values, "version": version, "seen": {name: values.get(name) for name in FIELDS}}


def flatten_quota(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a quota document to the values of the form fields."""
    weights = values["weight"]
    return {
        **{key: values[key] for key in ("gpu", "cpu", "memory_mib", "rank", "over_quota")},
        **{f"limit_{key}": amount for key, amount in values["limit"].items()},
        "weight": _to_number(weights["gpu"]),
        "weights": weights,
    }


def merge_stored_values(form: QuotaForm, quota: Quota | None) -> QuotaForm:
    """Return a form with the user's changes, and stored values in all other fields."""
    stored_values = initial_values(quota)
    seen, inputs = form.cleaned_data.get("seen") or {}, form.cleaned_data
    merged_values = {
        name: stored_values.get(name) if name in seen and inputs.get(name) == seen[name] else inputs.get(name)
        for name in FIELDS
    }
    merged_form = QuotaForm(
        {
            **merged_values,
            "version": stored_values["version"],
            "seen": json.dumps(stored_values["seen"]),
            "comment": inputs.get("comment", ""),
            "until": inputs.get("until", ""),
        },
        initial=stored_values,
        auto_id=form.auto_id,
    )
    merged_form.is_valid()
    return merged_form


def list_differences(form: QuotaForm) -> Iterator[tuple[str, str, str]]:
    """Yield the label, stored value and entered value of each field that saving would change."""
    for name in FIELDS:
        stored_value, inputs = form.initial.get(name), form.cleaned_data.get(name)
        if stored_value != inputs:
            yield str(form.fields[name].label), _displayed_value(stored_value), _displayed_value(inputs)


def _to_number_or_none(number: float | None) -> float | None:
    return None if number is None else _to_number(number)


def _displayed_value(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _to_number(number: float) -> float:
    """Convert a whole number to an int, so that 2.0 is shown as 2."""
    return int(number) if number.is_integer() else number
