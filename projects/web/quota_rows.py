"""The form of one row in a quota draft."""

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from projects.models import Department, Project, Quota
from projects.services.quotas import values_of
from projects.services.quotas.drafts import version_of
from projects.web.quota_form import flat

FIELDS = ("gpu", "limit_gpu", "weight", "rank")
FIELD_OF = {"gpu": "gpu", "limit": "limit_gpu", "limit.gpu": "limit_gpu", "weight": "weight",
            "weight.gpu": "weight", "rank": "rank"}  # fmt: skip


def _cell(label: str, step: str, placeholder: str) -> forms.NumberInput:
    attrs = {"class": "short cell", "step": step, "placeholder": placeholder, "aria-label": label}
    return forms.NumberInput(attrs=attrs)


class RowForm(forms.Form):
    gpu = forms.FloatField(required=False, widget=_cell("GPUs", "any", "∞"))
    limit_gpu = forms.FloatField(required=False, widget=_cell("GPU limit", "any", "none"))
    weight = forms.FloatField(widget=_cell("Weight", "any", ""))
    rank = forms.IntegerField(required=False, widget=_cell("Rank", "1", "owner's"))
    version = forms.CharField(widget=forms.HiddenInput, max_length=60)
    seen = forms.JSONField(widget=forms.HiddenInput)

    def said(self) -> Mapping[str, Any]:
        """The values that the editing began with."""
        seen = self.cleaned_data.get("seen")
        return seen if isinstance(seen, dict) else {}

    def touched(self) -> list[str]:
        """What was typed over. Of a form with faults: what is known of it."""
        said = self.said()
        return [
            name for name in FIELDS if name in self.cleaned_data and self.cleaned_data[name] != said.get(name)
        ]

    def values(self, quota: Quota | None) -> dict[str, Any]:
        """What was touched, in the words that the service takes."""
        typed, found = self.cleaned_data, dict[str, Any]()
        for name in self.touched():
            if name == "limit_gpu":
                found["limit"] = {"gpu": typed[name]}
            elif name == "weight" and quota is not None and not _alike(quota):
                found["weight"] = {"gpu": typed[name]}  # CPU and memory keep weights of their own
            else:
                found[name] = typed[name]
        return found


def prefix_of(owner: Department | Project) -> str:
    return f"{owner._meta.model_name}-{owner.pk}"


def present(quota: Quota | None) -> dict[str, Any]:
    if quota is None:
        return {"gpu": 0, "limit_gpu": None, "weight": 1, "rank": None}
    values = flat(values_of(quota))
    return {name: values[name] for name in FIELDS}


def fresh(owner: Department | Project, quota: Quota | None) -> RowForm:
    now = present(quota)
    initial = {**now, "seen": now, "version": version_of(quota)}
    return _named(RowForm(initial=initial, prefix=prefix_of(owner)), owner, now)


def typed(owner: Department | Project, data: Mapping[str, str]) -> RowForm | None:
    """None where the page that was sent did not hold this row."""
    prefix = prefix_of(owner)
    if f"{prefix}-version" not in data:
        return None
    form = RowForm(data, prefix=prefix)
    form.is_valid()
    return _named(form, owner, form.said())


def rebased(form: RowForm, owner: Department | Project, quota: Quota | None) -> RowForm:
    """On top of what is stored now: what was touched stays, the rest takes its present value."""
    now, kept = present(quota), {name: form.cleaned_data.get(name) for name in form.touched()}
    row = {**now, **kept, "version": version_of(quota), "seen": json.dumps(now)}
    again = typed(owner, {f"{form.prefix}-{name}": _text(value) for name, value in row.items()})
    assert again is not None, "it holds a version"
    return again


def moved(form: RowForm, quota: Quota | None) -> dict[str, Any]:
    """What somebody else changed since, field by field, as it is now."""
    now, said = present(quota), form.said()
    return {name: now[name] for name in FIELDS if now[name] != said.get(name)}


def _named(form: RowForm, owner: Department | Project, said: Mapping[str, Any]) -> RowForm:
    """Cells have no labels of their own: each says whose it is. What it began with is marked in the page."""
    touched = form.touched() if form.is_bound else []
    for name in FIELDS:
        attrs = form.fields[name].widget.attrs
        attrs["aria-label"] = f"{attrs['aria-label']} of {owner.name}"
        before = said.get(name)
        attrs["data-seen"] = _text(before)
        if name in touched or name in form.errors:
            attrs["class"] += " changed"
    return form


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _alike(quota: Quota) -> bool:
    return quota.weight_gpu == quota.weight_cpu == quota.weight_memory
