"""Base class of all forms. Error messages state the invalid value, the allowed values and what to do."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from berth.core.problems import VALUE_MAX, closest_match, format_value

EXAMPLES: tuple[tuple[type[forms.Field], str], ...] = (
    (forms.FloatField, "a number, for example 1.5"),
    (forms.IntegerField, "a whole number, for example 12"),
    (forms.EmailField, "an email address, for example ada@example.com"),
    (forms.DateTimeField, "a date and time, for example 2026-11-30 14:30"),
    (forms.DateField, "a date, for example 2026-11-30"),
    (forms.URLField, "an address, for example https://example.com/hook"),
)
# Limits for the summary of a collapsed section.
MAX_VALUES_SHOWN, MAX_VALUE_LENGTH = 3, 24
UNIT = re.compile(r"(.+) \((.+)\)")  # label with a unit


@dataclass(frozen=True)
class FormSection:
    """Section of a long form, with the names of its fields.

    A collapsed section opens if a field has an error. `shown_for` is a (field, value) pair: the section is
    visible only while the field has this value. `lines` are (title, field names) pairs, shown above the other
    fields.
    """

    title: str
    names: Sequence[str]
    text: str = ""
    is_folded: bool = False
    shown_for: tuple[str, str] | None = None
    lines: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True)
class BoundSection:
    """Section with its bound fields."""

    section: FormSection
    fields: Sequence[forms.BoundField]
    lines: Sequence[tuple[str, Sequence[forms.BoundField]]] = ()

    @property
    def is_open(self) -> bool:
        return not self.section.is_folded or any(field.errors for field in self.fields)

    @property
    def values_summary(self) -> str:
        """Return the labels and short values of the fields that differ from their defaults."""
        texts = [_text_if_changed(field) for field in self.fields]
        shown = [text for text in texts if text]
        more = f", {len(shown) - MAX_VALUES_SHOWN} more" if len(shown) > MAX_VALUES_SHOWN else ""
        return f"{', '.join(shown[:MAX_VALUES_SHOWN])}{more}"

    @property
    def default_values(self) -> str:
        """Return the labels and short values of the first fields.

        They describe a section whose fields all have their default values.
        """
        texts = [_describe_value(field) for field in self.fields if not isinstance(field.initial, bool)]
        return ", ".join([text for text in texts if text][:MAX_VALUES_SHOWN])


class Form(forms.Form):
    """Form that replaces Django's generic error messages with specific ones."""

    def sections(self) -> Sequence[FormSection]:
        """Return the form's sections. A form without sections shows its fields as a single list."""
        return ()

    def bound_sections(self) -> list[BoundSection]:
        """Return the sections that have fields."""
        shown = [
            BoundSection(
                section,
                [self[name] for name in section.names if name in self.fields],
                [(title, [self[name] for name in names]) for title, names in section.lines],
            )
            for section in self.sections()
        ]
        return [part for part in shown if part.fields]

    def set_display_hints(
        self, name: str, *, shown_for: str = "", hint_shown_for: str = "", has_live_error: bool = False
    ) -> None:
        """Show a field or its help text only while another field has a value, as in `source=template`.

        Set `has_live_error` if a script on the page already reports the field's errors.
        """
        hints = {"shown_for": shown_for, "hint_shown_for": hint_shown_for, "has_live_error": has_live_error}
        vars(self.fields[name]).update(hints)

    def reset_invalid_fields(self) -> set[str]:
        """Reset each invalid field to its initial value. Return the names of these fields."""
        invalid = {str(name) for name in self.errors} & self.fields.keys()
        for name in invalid:
            self.cleaned_data[name] = self._valid_value(name)
        return invalid

    def _valid_value(self, name: str) -> Any:
        field = self.fields[name]
        for value in (self.get_initial_for_field(field, name), ""):
            with suppress(ValidationError):
                return field.clean(value)
        return None

    def error_links(self) -> list[tuple[forms.BoundField, str, str]]:
        """Return the fields that have errors, each with its label and first error, in form order."""
        in_order: list[tuple[forms.BoundField, str]] = []
        for part in self.bound_sections():
            in_order += [(field, f"{title}: {field.label}") for title, line in part.lines for field in line]
            in_order += [(field, str(field.label)) for field in part.fields]
        fields = in_order or [(field, str(field.label)) for field in self.visible_fields()]
        return [(field, label, str(field.errors[0])) for field, label in fields if field.errors]

    def _clean_fields(self) -> None:
        super()._clean_fields()  # type: ignore[misc]  # no stub
        for name, errors in self.errors.items():
            field = self.fields.get(name)
            if field is None:
                continue
            value = self[name].data
            errors.data = [_specific_error(field, value, error) for error in errors.as_data()]


def _text_if_changed(field: forms.BoundField) -> str:
    """Return the field's label with its value, or "" if the field has its default value."""
    default, value = field.field.initial, field.initial
    if str(value) == str(default) or (value is False and not default):
        return ""
    return _describe_value(field)


def _describe_value(field: forms.BoundField) -> str:
    """Return the field's label with its value, or "" if the value is empty."""
    value = field.initial
    if value in (None, "", [], {}):
        return ""
    label, unit = match.groups() if (match := UNIT.fullmatch(str(field.label))) else (str(field.label), "")
    if isinstance(value, bool):
        return label if value else f"no {label[:1].lower()}{label[1:]}"
    text = _value_text(field.field, value)
    if len(text) > MAX_VALUE_LENGTH or not text.isprintable():
        return label
    is_name = isinstance(field.field, forms.ChoiceField)
    return f"{label}: {text[:1].lower()}{text[1:]}" if is_name else f"{label} {text} {unit}".rstrip()


def _value_text(field: forms.Field, value: Any) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(field, forms.ChoiceField):
        return str(dict(_choice_pairs(field.choices)).get(value, value))
    return str(field.prepare_value(value))


def _specific_error(field: forms.Field, value: Any, error: ValidationError) -> ValidationError:
    message = _specific_message(field, value, error)
    return ValidationError(message, code=error.code) if message else error


def _specific_message(field: forms.Field, value: Any, error: ValidationError) -> str:
    """Return a more specific message, or "" if the error's own message is specific enough."""
    code, params = error.code, error.params or {}
    if code == "required":
        return "Choose a value." if isinstance(field, forms.ChoiceField) else "Enter a value."
    if code == "min_value":
        return f"{_quote_value(value)} is too low. Enter {params['limit_value']} or more."
    if code == "max_value":
        return f"{_quote_value(value)} is too high. Enter {params['limit_value']} or less."
    if code == "max_length":
        return f"{params['show_value']} characters are too many. Enter at most {params['limit_value']}."
    if code == "min_length":
        return f"{params['show_value']} characters are too few. Enter at least {params['limit_value']}."
    if code == "invalid_choice" and isinstance(field, forms.ChoiceField):
        return _invalid_choice(field, str(params.get("value", value)))
    if code == "invalid":
        example = next((text for kind, text in EXAMPLES if type(field) is kind), "")
        return f"{_quote_value(value)} is not valid. Enter {example}." if example else ""
    return ""


def _invalid_choice(field: forms.ChoiceField, value: str) -> str:
    allowed = [str(choice) for choice in _choice_values(field.choices) if choice not in ("", None)]
    match = closest_match(value, allowed)
    if match:
        advice = f"Did you mean {match}?"
    elif 0 < len(allowed) <= 12:
        advice = (
            f"Choose {', '.join(allowed)}." if len(allowed) == 1 else f"Choose one of {', '.join(allowed)}."
        )
    else:
        advice = "Choose one from the list."
    return f"{_quote_value(value)} is not available. {advice}"


def _choice_pairs(choices: Any) -> Iterator[tuple[Any, Any]]:
    for value, label in choices:
        if isinstance(label, (list, tuple)):
            yield from _choice_pairs(label)
        else:
            yield value, label


def _choice_values(choices: Any) -> Iterator[Any]:
    return (value for value, _ in _choice_pairs(choices))


def _quote_value(value: object) -> str:
    """Quote text, and shorten it if it is long. Format other values with `format_value`."""
    if isinstance(value, str) and value.isprintable():
        return f'"{value[: VALUE_MAX - 1]}…"' if len(value) > VALUE_MAX else f'"{value}"'
    return format_value(value)
