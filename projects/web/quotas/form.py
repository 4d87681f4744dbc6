"""Form for one quota."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from django import forms

from berth.server.web.forms import Form
from projects.models import Quota
from projects.services.quotas import quota_values

LIMITED = (("gpu", "GPUs"), ("cpu", "CPU cores"), ("memory_mib", "MiB"))  # with their units
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


def _amount_field(label: str, step: str) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"class": "short", "step": step, "min": "0", "placeholder": "∞"})
    return forms.FloatField(label=label, required=False, widget=widget)


class QuotaForm(Form):
    gpu = _amount_field("GPUs", "any")
    limit_gpu = _amount_field("GPU limit", "any")
    weight = forms.FloatField(
        label="Over-quota weight",
        widget=forms.NumberInput(attrs={"class": "short", "step": "any", "min": "0"}),
        help_text="Weight for sharing over-quota capacity.",
    )
    rank = forms.IntegerField(
        label="Rank",
        required=False,
        widget=forms.NumberInput(attrs={"class": "short", "placeholder": "inherited"}),
    )
    cpu = _amount_field("CPU cores", "any")
    limit_cpu = _amount_field("CPU limit", "any")
    memory_mib = _amount_field("Memory (MiB)", "1")
    limit_memory_mib = _amount_field("Memory limit (MiB)", "1")
    over_quota = forms.BooleanField(label="Can exceed quota", required=False)
    version = forms.IntegerField(widget=forms.HiddenInput)
    seen = forms.JSONField(widget=forms.HiddenInput, required=False)  # values when the form was opened

    def clean(self) -> dict[str, Any]:
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


def merge_stored(form: QuotaForm, quota: Quota | None) -> QuotaForm:
    """Return a form that combines the user's changes with the stored values of all other fields."""
    stored_values = initial_values(quota)
    seen, inputs = form.cleaned_data.get("seen") or {}, form.cleaned_data
    merged_values = {
        name: stored_values.get(name) if name in seen and inputs.get(name) == seen[name] else inputs.get(name)
        for name in FIELDS
    }
    merged_form = QuotaForm(
        {**merged_values, "version": stored_values["version"], "seen": json.dumps(stored_values["seen"])},
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
