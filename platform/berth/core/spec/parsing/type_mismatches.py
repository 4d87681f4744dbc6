"""Problems with values of the wrong type, each with the nearest valid value or the expected form."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError, create_model

from berth.core.problems import LISTED_MAX, SUGGESTION, VALUE_MAX, Problem, format_value

EXPECTED = {
    "string_type": "text", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "bool_type": "true or false", "dict_type": "a mapping",
    "model_type": "a mapping", "tuple_type": "a list", "list_type": "a list",
    "finite_number": "a finite number",
}  # fmt: skip
FORMS = {
    "dict_type": "`key: value`, one per line", "model_type": "`key: value`, one per line",
    "tuple_type": "one item per line, each after `- `", "list_type": "one item per line, each after `- `",
}  # fmt: skip
BOOLEANS = dict.fromkeys(("yes", "on", "true", "1"), True) | dict.fromkeys(("no", "off", "false", "0"), False)
PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)  # text that needs no quotes in YAML, except BOOLEANS
ASSIGNMENT = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.ASCII)

Field = tuple[type[BaseModel], str]  # a model, and the name of one of its fields


def describe_mismatch(
    path: str,
    kind: str,
    value: object,
    field: Field | None,
    model: type[BaseModel] | None,
    *,
    with_nearest: bool,
) -> Problem:
    """Return the problem with a value of the wrong type.

    `kind` is pydantic's error type. `field` is None for an item of a list or mapping. `model` is the model of
    the expected mapping, or None if there is no model.
    """
    keys = sorted(model.model_fields) if model is not None else []
    message = f"must be {EXPECTED[kind]}"
    actual = "" if kind == "finite_number" else _describe_type(value)
    message += f", not {actual}" if actual else ""
    for nearest in _nearest_values(kind, value, keys) if with_nearest else ():
        text = _to_flow_style(nearest)
        if len(text) <= VALUE_MAX and _is_valid(nearest, field, model):
            return Problem(path, message, format_value(value), f"{SUGGESTION}`{text}`?")
    form = f"a mapping of {', '.join(keys)}" if 0 < len(keys) <= LISTED_MAX else FORMS.get(kind, "")
    return Problem(path, message, format_value(value), form)


def _describe_type(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case int():
            return "a number"
        case float():
            return "a fraction"
        case str():
            return "text"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return ""


def _nearest_values(kind: str, value: object, keys: list[str]) -> Iterator[object]:
    """Yield values that the user may have meant."""
    if kind in ("tuple_type", "list_type") and isinstance(value, str | int | Mapping):
        yield [value]
        if not isinstance(value, Mapping):
            yield [str(value)]
    elif kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif kind == "int_type" and isinstance(value, str) and value.isascii() and value.isdigit():
        yield int(value)
    elif kind == "bool_type" and str(value).lower() in BOOLEANS:
        yield BOOLEANS[str(value).lower()]
    elif kind == "dict_type":
        lines = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        pairs = [ASSIGNMENT.fullmatch(line) for line in lines if isinstance(line, str)]
        if pairs and len(pairs) == len(lines) and all(pairs):
            yield {pair[1]: pair[2] for pair in pairs if pair is not None}
    elif kind == "model_type" and isinstance(value, str) and "name" in keys:
        yield {"name": value}


def _is_valid(value: object, field: Field | None, model: type[BaseModel] | None) -> bool:
    try:
        if field is not None:
            _field_model(*field).model_validate({"value": value})
        elif model is not None:
            model.model_validate(value)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)  # creating a model takes milliseconds
def _field_model(owner: type[BaseModel], name: str) -> type[BaseModel]:
    """Return a model whose only field, `value`, is a copy of the owner's field `name`."""
    field = owner.model_fields[name]
    return create_model("Value", value=(field.annotation or Any, field))


def _to_flow_style(value: Any) -> str:
    match value:
        case str():
            return value if PLAIN.fullmatch(value) and value.lower() not in BOOLEANS else json.dumps(value)
        case Mapping():
            return f"{{{', '.join(f'{key}: {_to_flow_style(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(map(_to_flow_style, value))}]"
    return json.dumps(value, default=str)
