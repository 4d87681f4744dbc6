"""Here a quota becomes a form and back: empty is unlimited, every fault stands beside its field."""

from collections.abc import Iterator, Mapping
from typing import Any

from django import forms

from projects.models import Quota
from projects.services.quotas import values_of

UNLIMITED = "Empty: unlimited"
FIELD_OF = {
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


def _amount(label: str, step: str, hint: str = UNLIMITED) -> forms.FloatField:
    widget = forms.NumberInput(attrs={"class": "short", "step": step, "min": "0", "placeholder": "∞"})
    return forms.FloatField(label=label, required=False, widget=widget, help_text=hint)


class QuotaForm(forms.Form):
    gpu = _amount("GPUs", "any")
    limit_gpu = _amount("GPU limit", "any")
    weight = forms.FloatField(
        label="Over-quota weight",
        widget=forms.NumberInput(attrs={"class": "short", "step": "any", "min": "0"}),
        help_text="Share of what is left over",
    )
    rank = forms.IntegerField(
        label="Rank",
        required=False,
        widget=forms.NumberInput(attrs={"class": "short"}),
        help_text="Empty: the owner's own",
    )
    cpu = _amount("CPU cores", "any")
    limit_cpu = _amount("CPU limit", "any")
    memory_mib = _amount("Memory, MiB", "1")
    limit_memory_mib = _amount("Memory limit, MiB", "1")
    over_quota = forms.BooleanField(label="May go beyond quota", required=False)
    version = forms.IntegerField(widget=forms.HiddenInput)

    def values(self) -> dict[str, Any]:
        """In the words that the service takes."""
        said = self.cleaned_data
        weight: Any = said["weight"]
        if "weight" in self.initial and weight == self.initial["weight"] and "weights" in self.initial:
            weight = self.initial["weights"]  # CPU and memory keep weights of their own
        return {
            "gpu": said["gpu"],
            "cpu": said["cpu"],
            "memory_mib": _whole(said["memory_mib"]),
            "limit": {
                "gpu": said["limit_gpu"],
                "cpu": said["limit_cpu"],
                "memory_mib": _whole(said["limit_memory_mib"]),
            },
            "weight": weight,
            "rank": said["rank"],
            "over_quota": said["over_quota"],
        }


def initial_of(quota: Quota | None) -> dict[str, Any]:
    if quota is None:
        return {"gpu": 0, "weight": 1.0, "over_quota": True, "version": 0}
    return {**flat(values_of(quota)), "version": quota.version}


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The service's words as the form's fields."""
    weights = values["weight"]
    return {
        **{key: values[key] for key in ("gpu", "cpu", "memory_mib", "rank", "over_quota")},
        **{f"limit_{key}": amount for key, amount in values["limit"].items()},
        "weight": _plain(weights["gpu"]),
        "weights": weights,
    }


def differing(form: QuotaForm, current: Mapping[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    """(field's title, what it is now, what was typed) where somebody else's change and ours disagree."""
    present = flat(current) if current else {}
    for name, field in form.fields.items():
        if name == "version":
            continue
        now, typed = present.get(name), form.cleaned_data.get(name)
        if now != typed:
            yield str(field.label), _shown(now), _shown(typed)


def _whole(number: float | None) -> float | None:
    return None if number is None else _plain(number)


def _shown(value: Any) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(number: float) -> float:
    """2.0 as people write it."""
    return int(number) if number.is_integer() else number
