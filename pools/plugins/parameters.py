"""Derive a plugin's parameters from its function signature, and validate values.

A parameter is a keyword with a type that JSON can hold: texts, numbers, yes or no, a Literal, lists and
mappings of these, or one of several. `Annotated[..., Says("...")]` tells more of it, `Secret("HF_TOKEN")`
makes it a secret that reaches processes in the environment variable named.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from berth.core.problems import Problem, shown, suggestion
from pools.plugins.errors import PluginError

Schema = Mapping[str, Any]
_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_WORDS = {
    "string": "a text", "boolean": "true or false", "integer": "a whole number", "number": "a number",
    "null": "null", "array": "a list", "object": "names with values",
}  # fmt: skip


@dataclass(frozen=True)
class Says:
    """`pattern` must match a text whole."""

    description: str
    pattern: str = ""
    allowed: str = ""
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Secret:
    """Given once, never shown again; the function sees only that there is one."""

    variable: str
    description: str = ""


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    """A JSON schema of the keywords it takes."""
    hints = get_type_hints(function, include_extras=True)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise PluginError(f"{_named(function)}: the parameter {name} cannot be given by name")
        properties[name] = _type(hints.get(name, str), f"{_named(function)}: {name}")
        if parameter.default is parameter.empty:
            required.append(name)
        elif "secret" not in properties[name]:
            properties[name]["default"] = _listed(parameter.default)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def secrets_of(schema: Schema) -> dict[str, str]:
    """The variable of each secret parameter."""
    return {name: told["secret"] for name, told in schema["properties"].items() if "secret" in told}


def problems_of(schema: Schema, given: object, path: str = "") -> Iterator[Problem]:
    """Whatever does not fit, each with its place, what was given and what would be allowed."""
    if "anyOf" in schema:
        if all(any(problems_of(choice, given)) for choice in schema["anyOf"]):
            yield Problem(path, "is not allowed", shown(given), " or ".join(map(_allowed, schema["anyOf"])))
    elif not _is(schema.get("type"), given):
        said = "(a secret)" if "secret" in schema else shown(given)
        yield Problem(path, f"is not {_WORDS[schema['type']]}", said, _allowed(schema))
    elif isinstance(given, Mapping):
        yield from _in_object(schema, given, path)
    elif isinstance(given, list | tuple):
        for index, item in enumerate(given):
            yield from problems_of(schema.get("items", {}), item, f"{path}[{index}]")
    elif not _fits(schema, given):
        said = "(a secret)" if "secret" in schema else shown(given)
        yield Problem(path, "is not allowed", said, _allowed(schema))


def _in_object(schema: Schema, given: Mapping[Any, Any], path: str) -> Iterator[Problem]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name in schema.get("required", ()):
        if name not in given:
            yield Problem(_joined(path, name), "is missing", allowed=_allowed(known[name]))
    for name, value in given.items():
        place = _joined(path, name)
        if name in known:
            yield from problems_of(known[name], value, place)
        elif more is False:
            allowed = suggestion(str(name), known) or "no parameters"
            yield Problem(place, "unknown parameter", allowed=allowed)
        else:
            yield from problems_of(more, value, place)


def _fits(schema: Schema, given: Any) -> bool:
    if "enum" in schema and given not in schema["enum"]:
        return False
    if isinstance(given, str):
        return "\0" not in given and re.fullmatch(schema.get("pattern", "(?s:.*)"), given) is not None
    if isinstance(given, int | float) and not isinstance(given, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        return (low is None or given >= low) and (high is None or given <= high)
    return True


def _is(kind: str | None, given: object) -> bool:
    if kind is None:
        return True
    if kind == "integer":
        return isinstance(given, int) and not isinstance(given, bool)
    if kind == "number":
        return isinstance(given, int | float) and not isinstance(given, bool)
    wanted: dict[str, tuple[type, ...]] = {
        "string": (str,), "boolean": (bool,), "null": (type(None),), "array": (list, tuple),
        "object": (Mapping,),
    }  # fmt: skip
    return isinstance(given, wanted[kind])


def _allowed(schema: Schema) -> str:
    if "allowed" in schema:
        return str(schema["allowed"])
    if "enum" in schema:
        return ", ".join(repr(choice) for choice in schema["enum"])
    if "minimum" in schema or "maximum" in schema:
        word = _WORDS[schema["type"]]
        return f"{word} from {schema.get('minimum', 'any')} to {schema.get('maximum', 'any')}"
    return _WORDS.get(schema.get("type", ""), "any value")


def _type(hint: Any, what: str) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(parts, what)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint in (Any, object):
        return {}
    if origin is Literal:
        return {"type": _PLAIN[type(parts[0])], "enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type(part, what) for part in parts]}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": _type(parts[0], what)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _type(parts[1], what)}
    raise PluginError(f"{what} has a type that JSON cannot hold: {hint!r}")


def _annotated(parts: tuple[Any, ...], what: str) -> dict[str, Any]:
    found = _type(parts[0], what)
    for told in parts[1:]:
        if isinstance(told, Secret):
            found |= {"secret": told.variable, "writeOnly": True, "description": told.description}
        elif isinstance(told, Says):
            said = {name: getattr(told, name) for name in Says.__dataclass_fields__}
            found |= {name: value for name, value in said.items() if value not in ("", None)}
    return found


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _joined(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _named(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))
