"""Derive a plugin's parameters from its function's signature, and validate their values.

A parameter is a keyword argument of a type that JSON can represent. `Annotated[..., Parameter("...")]` adds a
description and constraints, and `Annotated[..., Secret("HF_TOKEN")]` declares a secret that processes receive
in this environment variable.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from berth.core.problems import Problem, format_value, suggest
from pools.plugins.errors import PluginError

Schema = Mapping[str, Any]
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_TYPE_DESCRIPTIONS = {
    "string": "text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
    "null": "null", "array": "a list", "object": "a mapping",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """Description and constraints of a plugin parameter. `pattern` must match the whole text."""

    description: str
    pattern: str = ""
    allowed: str = ""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Secret:
    """Annotation of a secret plugin parameter. Its value is never shown. The function gets a placeholder."""

    variable: str
    description: str = ""


def parameter_schema(function: Callable[..., object]) -> dict[str, Any]:
    """Return a JSON schema for a function's parameters. Raises PluginError if one is unsupported."""
    properties, required = {}, []
    # Do not use get_type_hints(): on Python 3.10, it adds None to parameters that default to None.
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise PluginError(f"{_function_name(function)}: the parameter {name} cannot be passed by name")
        hint = str if parameter.annotation is parameter.empty else parameter.annotation
        properties[name] = _type_schema(hint, f"{_function_name(function)}: {name}")
        if parameter.default is parameter.empty:
            required.append(name)
        elif "secret" not in properties[name]:
            properties[name]["default"] = _json_default(parameter.default)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def secret_variables(schema: Schema) -> dict[str, str]:
    """Return the name of the environment variable for each secret parameter."""
    return {name: details["secret"] for name, details in schema["properties"].items() if "secret" in details}


def parameter_problems(schema: Schema, value: object, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each value that the schema rejects, without revealing secrets."""
    if "anyOf" in schema:
        if all(any(parameter_problems(choice, value)) for choice in schema["anyOf"]):
            yield Problem(
                path,
                "is not allowed",
                format_value(value),
                " or ".join(map(_describe_allowed_values, schema["anyOf"])),
            )
    elif not _has_type(schema.get("type"), value):
        received = "(a secret)" if "secret" in schema else format_value(value)
        yield Problem(
            path, f"is not {_TYPE_DESCRIPTIONS[schema['type']]}", received, _describe_allowed_values(schema)
        )
    elif isinstance(value, Mapping):
        yield from _object_problems(schema, value, path)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from parameter_problems(schema.get("items", {}), item, f"{path}[{index}]")
    elif not _is_allowed(schema, value):
        received = "(a secret)" if "secret" in schema else format_value(value)
        yield Problem(path, "is not allowed", received, _describe_allowed_values(schema))


def _object_problems(schema: Schema, values: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    properties, additional = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name in schema.get("required", ()):
        if name not in values:
            yield Problem(
                _join_path(path, name), "is missing", allowed=_describe_allowed_values(properties[name])
            )
    for name, value in values.items():
        item_path = _join_path(path, name)
        if name in properties:
            yield from parameter_problems(properties[name], value, item_path)
        elif additional is False:
            allowed = suggest(str(name), properties) or "no parameters"
            yield Problem(item_path, "unknown parameter", allowed=allowed)
        else:
            yield from parameter_problems(additional, value, item_path)


def _is_allowed(schema: Schema, value: Any) -> bool:
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return "\0" not in value and re.fullmatch(schema.get("pattern", "(?s:.*)"), value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        return (low is None or value >= low) and (high is None or value <= high)
    return True


def _has_type(kind: str | None, value: object) -> bool:
    if kind is None:
        return True
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types_by_kind: dict[str, tuple[type, ...]] = {
        "string": (str,), "boolean": (bool,), "null": (type(None),), "array": (list, tuple),
        "object": (Mapping,),
    }  # fmt: skip
    return isinstance(value, types_by_kind[kind])


def _describe_allowed_values(schema: Schema) -> str:
    if "allowed" in schema:
        return str(schema["allowed"])
    if "enum" in schema:
        return ", ".join(repr(choice) for choice in schema["enum"])
    if "minimum" in schema or "maximum" in schema:
        word = _TYPE_DESCRIPTIONS[schema["type"]]
        return f"{word} from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"
    return _TYPE_DESCRIPTIONS.get(schema.get("type", ""), "any value")


def _type_schema(hint: Any, label: str) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated_schema(parts, label)
    if hint in _JSON_TYPES:
        return {"type": _JSON_TYPES[hint]}
    if hint in (Any, object):
        return {}
    if origin is Literal:
        return {"type": _JSON_TYPES[type(parts[0])], "enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(part, label) for part in parts]}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _type_schema(parts[0], label)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type_schema(parts[1], label)}
    raise PluginError(f"{label} has a type that JSON cannot represent: {hint!r}")


def _annotated_schema(parts: tuple[Any, ...], label: str) -> dict[str, Any]:
    schema = _type_schema(parts[0], label)
    for annotation in parts[1:]:
        if isinstance(annotation, Secret):
            schema |= {
                "secret": annotation.variable,
                "writeOnly": True,
                "description": annotation.description,
            }
        elif isinstance(annotation, Parameter):
            details = {name: getattr(annotation, name) for name in Parameter.__dataclass_fields__}
            schema |= {name: value for name, value in details.items() if value not in ("", None)}
    return schema


def _json_default(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _function_name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))
