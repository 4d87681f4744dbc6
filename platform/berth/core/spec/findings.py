"""Convert pydantic validation errors to problems."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from berth.core.problems import Problem, path_of, shown, suggestion
from berth.core.spec.roles import ONE_LINE, WORD_LIST

EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "bool_type": "true or false", "dict_type": "keys and values",
    "model_type": "keys and values", "tuple_type": "a list", "list_type": "a list",
    "finite_number": "a finite number",
}  # fmt: skip
MESSAGES = {
    "literal_error": "is not one of the choices", "too_long": "too many", "too_short": "too few",
    "string_too_long": "too long", "string_too_short": "too short", "greater_than_equal": "too small",
    "greater_than": "too small", "less_than_equal": "too large", "less_than": "too large",
    "int_parsing_size": "too large",
} | {kind: f"is not {what}" for kind, what in EXPECTED.items()}  # fmt: skip
LEAST = {"greater_than_equal": "ge", "greater_than": "gt"}
MOST = {"less_than_equal": "le", "less_than": "lt"}


def problems_of(error: ValidationError, top: type[BaseModel]) -> list[Problem]:
    """Convert validation errors to problems. `top` is the model of the whole document."""
    errors = error.errors(include_url=False)
    inside = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    # Pydantic drops invalid list members. Do not report the remaining list as too short.
    return [
        _problem_of(details, top)
        for details in errors
        if details["type"] != "too_short" or details["loc"] not in inside
    ]


def _problem_of(details: ErrorDetails, top: type[BaseModel]) -> Problem:
    location = tuple(step for step in details["loc"] if not _is_branch(step))
    path, kind = path_of(location), details["type"]
    context = details.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown_key(path, location, top)
    if kind == "missing":
        return Problem(path, "missing", "", "a value")
    allowed = str(context.get("allowed", "")) or _allowed(kind, context)
    message = MESSAGES.get(kind, details["msg"])
    return Problem(path, message, shown(details["input"]), allowed or EXPECTED.get(kind, ""))


def _unknown_key(path: str, location: tuple[str | int, ...], top: type[BaseModel]) -> Problem:
    allowed = sorted(_owner(location[:-1], top).model_fields)
    return Problem(path, "unknown key", shown(location[-1]), suggestion(str(location[-1]), allowed))


def _owner(location: tuple[str | int, ...], top: type[BaseModel]) -> type[BaseModel]:
    """Return the model that describes this location of the document."""
    owner = top
    for step in location:
        if isinstance(step, str) and step in owner.model_fields:
            owner = next(_models_in(owner.model_fields[step].annotation), owner)
    return owner


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _allowed(kind: str, context: Mapping[str, Any]) -> str:
    if kind in LEAST:
        return f"{'above' if kind == 'greater_than' else 'at least'} {context[LEAST[kind]]}"
    if kind in MOST:
        return f"{'below' if kind == 'less_than' else 'at most'} {context[MOST[kind]]}"
    if kind in ("string_too_long", "too_long"):
        return f"at most {context['max_length']}"
    if kind in ("string_too_short", "too_short"):
        return f"at least {context['min_length']}"
    return str(context.get("expected", ""))


def _is_branch(step: str | int) -> bool:
    """Return whether pydantic inserted this step for a union, so that it is not a key of the document."""
    return step in (ONE_LINE, WORD_LIST, "[key]")
