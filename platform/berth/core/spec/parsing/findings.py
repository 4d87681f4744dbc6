"""Convert pydantic validation errors to problems."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from berth.core.problems import Problem, format_value, join_path, suggest
from berth.core.spec.parsing.type_mismatches import EXPECTED, FORMS, describe_mismatch
from berth.core.spec.roles import ONE_LINE, WORD_LIST
from berth.core.spec.sections.after import OLD_KEY, replacement_for_old_key
from berth.core.spec.sections.arrays import PARAMETER_MAPPING, PARAMETER_TEXT, TASK_COUNT, TASK_LIST

MESSAGES = {
    "literal_error": "is not an allowed value", "too_long": "has too many entries",
    "too_short": "has too few entries", "string_too_long": "is too long", "string_too_short": "is too short",
    "greater_than_equal": "is too small", "greater_than": "is too small", "less_than_equal": "is too large",
    "less_than": "is too large", "int_parsing_size": "is too large",
}  # fmt: skip
UNION_TAGS = (ONE_LINE, WORD_LIST, TASK_COUNT, TASK_LIST, PARAMETER_TEXT, PARAMETER_MAPPING, "[key]")
TOO_SHORT = ("string_too_short", "too_short")
NEAREST_MAX = 20  # maximum number of errors that suggest the nearest valid value
LOWER_BOUNDS = {"greater_than_equal": "ge", "greater_than": "gt"}
UPPER_BOUNDS = {"less_than_equal": "le", "less_than": "lt"}


def convert_errors(error: ValidationError, root_model: type[BaseModel]) -> list[Problem]:
    """Convert validation errors to problems. `root_model` is the model of the whole document."""
    return [
        _convert_error(details, root_model, with_nearest=number < NEAREST_MAX)
        for number, details in enumerate(independent_errors(error))
    ]


def independent_errors(error: ValidationError) -> list[ErrorDetails]:
    """Return the error details, except for lists that seem too short because of their invalid items."""
    errors = error.errors(include_url=False)
    prefixes = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    # Pydantic drops invalid list items before it counts them.
    return [details for details in errors if details["type"] != "too_short" or details["loc"] not in prefixes]


def _convert_error(details: ErrorDetails, root_model: type[BaseModel], *, with_nearest: bool) -> Problem:
    location = tuple(step for step in details["loc"] if not _is_union_tag(step))
    context, kind = details.get("ctx") or {}, details["type"]
    # A check of an entire section may name the key that the user should change.
    path = join_path((*location, context["at"]) if "at" in context else location)
    if kind == "extra_forbidden":
        if location[-1] == OLD_KEY:
            return Problem(path, "was replaced by after", "", replacement_for_old_key(details["input"]))
        return _unknown_key_problem(path, location, root_model)
    if kind == "missing":
        return Problem(path, "is missing")
    if kind in EXPECTED:
        return _mismatch_problem(path, location, details, root_model, with_nearest=with_nearest)
    allowed = str(context.get("allowed", "")) or _describe_allowed_values(kind, context, details["input"])
    message = (
        "is empty"
        if not details["input"] and kind in TOO_SHORT
        else MESSAGES.get(kind, details["msg"].removeprefix("Value error, "))
    )
    # An error about several keys of a section does not quote the whole section.
    is_section = isinstance(details["input"], Mapping) and kind not in MESSAGES
    is_secret = is_section or context.get("is_secret") or _is_secret(location, root_model)
    received = "" if is_secret else format_value(details["input"])
    return Problem(path, message, received, allowed)


def _mismatch_problem(
    path: str,
    location: tuple[str | int, ...],
    details: ErrorDetails,
    root_model: type[BaseModel],
    *,
    with_nearest: bool,
) -> Problem:
    kind, value = details["type"], details["input"]
    if _is_secret(location, root_model):
        return Problem(path, f"must be {EXPECTED[kind]}", "", FORMS.get(kind, ""))
    key = location[-1] if location else 0
    owner = _find_model(location[:-1], root_model)
    field = (owner, key) if isinstance(key, str) and key in owner.model_fields else None
    model = _find_model(location, root_model) if kind == "model_type" else None
    return describe_mismatch(path, kind, value, field, model, with_nearest=with_nearest)


def _unknown_key_problem(path: str, location: tuple[str | int, ...], root_model: type[BaseModel]) -> Problem:
    allowed = sorted(_find_model(location[:-1], root_model).model_fields)
    return Problem(path, "unknown key", format_value(location[-1]), suggest(str(location[-1]), allowed))


def _is_secret(location: tuple[str | int, ...], root_model: type[BaseModel]) -> bool:
    """Return whether the value is secret and must not appear in messages.

    Models mark secret fields with repr=False.
    """
    field = root_model.model_fields.get(str(location[0])) if location else None
    return field is not None and not field.repr


def _find_model(location: tuple[str | int, ...], root_model: type[BaseModel]) -> type[BaseModel]:
    owner = root_model
    for step in location:
        if isinstance(step, str) and step in owner.model_fields:
            owner = next(_models_in(owner.model_fields[step].annotation), owner)
    return owner


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _describe_allowed_values(kind: str, context: Mapping[str, Any], value: object) -> str:
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return suggest(str(value), words) if words else str(context.get("expected", ""))
    if kind in LOWER_BOUNDS:
        return f"{'above' if kind == 'greater_than' else 'at least'} {context[LOWER_BOUNDS[kind]]}"
    if kind in UPPER_BOUNDS:
        return f"{'below' if kind == 'less_than' else 'at most'} {context[UPPER_BOUNDS[kind]]}"
    if kind in ("string_too_long", "too_long"):
        return f"at most {context['max_length']}"
    if kind in TOO_SHORT:
        return f"at least {context['min_length']}"
    return str(context.get("expected", ""))


def _is_union_tag(step: str | int) -> bool:
    """Return whether an element of a path is a pydantic union tag rather than a document key."""
    return step in UNION_TAGS
