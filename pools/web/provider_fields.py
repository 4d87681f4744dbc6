"""Form fields for provider settings, derived from the settings' pydantic models."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from django import forms
from pydantic.fields import FieldInfo

from pools.providers.settings import MODELS
from pools.web.document_fields import YamlField
from pools.web.environment_fields import LinesField

# Extra JSON schema for settings that hold several lines of text.
MULTILINE = {"multiline": True}


def provider_fields(provider: str) -> dict[str, forms.Field]:
    """Return the form fields for a provider's settings, in model order."""
    fields = {
        f"{provider}_{name}": _form_field(name, info) for name, info in _settings_fields(provider).items()
    }
    for name in required_settings(provider):
        # Required only if this provider is chosen, so the service checks it instead of the form.
        fields[f"{provider}_{name}"].widget.attrs["required"] = True
    return fields


def required_settings(provider: str) -> tuple[str, ...]:
    """Return the names of the settings that a pool of the provider must have."""
    return tuple(name for name, info in _settings_fields(provider).items() if info.is_required())


def provider_values(provider: str, cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that were entered and differ from their defaults."""
    values = {name: cleaned.get(f"{provider}_{name}") for name in _settings_fields(provider)}
    return {
        name: value
        for name, value in values.items()
        if value not in (None, "", [], {}) and value != _settings_fields(provider)[name].default
    }


def initial_values(provider: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's initial values for a provider's stored settings."""
    fields = provider_fields(provider)
    names = [name for name in _settings_fields(provider) if name in stored]
    return {f"{provider}_{name}": _field_value(fields[f"{provider}_{name}"], stored[name]) for name in names}


def field_names_by_path(provider: str) -> dict[str, str]:
    """Return the name of each setting's form field, keyed by the setting's path in a pool document."""
    return {f"provider_settings.{name}": f"{provider}_{name}" for name in _settings_fields(provider)}


def _settings_fields(provider: str) -> Mapping[str, FieldInfo]:
    return MODELS[provider].model_fields if provider in MODELS else {}


def _form_field(name: str, info: FieldInfo) -> forms.Field:
    example = str(info.examples[0]) if info.examples else ""
    common: dict[str, Any] = {
        "label": info.title or name.replace("_", " ").capitalize(),
        "help_text": info.description or "",
    }
    kind = _unwrap_optional(info.annotation)
    if get_origin(kind) is tuple and _unwrap_optional(get_args(kind)[0]) is str:
        return LinesField(example=example, **common, rows=2)
    common["required"] = False
    initial = None if info.is_required() else info.get_default(call_default_factory=True)
    if get_origin(kind) is Literal:
        choices = [(value, value.replace("_", " ").capitalize()) for value in get_args(kind)]
        return forms.ChoiceField(choices=choices, initial=initial, **common)
    if kind is bool:
        return forms.BooleanField(initial=initial, **common)
    if kind in (int, float):
        return (forms.IntegerField if kind is int else forms.FloatField)(initial=initial, **common)
    if kind is str and (info.json_schema_extra or {}) == MULTILINE:
        attrs = {"rows": 3, "spellcheck": "false", "class": "mono", "placeholder": example}
        return forms.CharField(initial=initial or "", widget=forms.Textarea(attrs=attrs), **common)
    if kind is str:
        widget = forms.TextInput(attrs={"placeholder": example})
        return forms.CharField(initial=initial or "", widget=widget, **common)
    return YamlField(example=example, **common)


def _unwrap_optional(annotation: Any) -> Any:
    """Return the type that remains after None and constraints are stripped from an annotation."""
    if get_origin(annotation) is Annotated:
        return _unwrap_optional(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (kind,) = (kind for kind in get_args(annotation) if kind is not NoneType)
        return _unwrap_optional(kind)
    return annotation


def _field_value(field: forms.Field, value: Any) -> Any:
    if isinstance(field, LinesField):
        return "\n".join(value)
    if isinstance(field, YamlField):
        return yaml.safe_dump(value, sort_keys=False).strip() if value else ""
    return value
