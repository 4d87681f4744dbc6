"""Encode snapshots as JSON and decode them without loss.

Scenario files reject values that should not be written by hand, but a snapshot must carry every value that
rows can have. Fields with default values are omitted.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from scheduler.engine.model import Node, Snapshot, Workload

Decoder = Callable[[Any], Any]
Encoded = dict[str, tuple[object, str]]  # value and its JSON by name
LONG = ("nodes", "workloads")  # long snapshot fields, mostly unchanged between cycles


class Unreadable(ValueError):
    """The snapshot was stored by an engine version with different fields."""


class Texts:
    """Encode snapshots as JSON, reusing the text of workloads and nodes that did not change."""

    def __init__(self) -> None:
        self._encoded: dict[str, Encoded] = {}

    def of(self, snapshot: Snapshot) -> str:
        parts = []
        for name, default in _fields(Snapshot):
            value = getattr(snapshot, name)
            if name in LONG and value:
                text = f"[{','.join(self._each(name, value))}]"
            elif value == default:
                continue
            else:
                text = written(_plain(value))
            parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"

    def _each(self, kind: str, values: Sequence[Workload | Node]) -> Iterator[str]:
        before = self._encoded.get(kind, {})
        now = self._encoded[kind] = {}
        for each in values:
            cached = before.get(each.name)
            if cached is None or cached[0] is not each:
                cached = each, written(_plain(each))
            now[each.name] = cached
            yield cached[1]


def written(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def decoded(document: Any) -> Snapshot:
    """Return the snapshot. Raises Unreadable."""
    try:
        snapshot: Snapshot = _decoder(Snapshot)(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    return snapshot


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, float, bool, NoneType):
        return value
    if kind in _PLAIN_FIELDS or is_dataclass(value):
        document = {}
        for name, default in _fields(kind):
            part = getattr(value, name)
            if part is not default and part != default:
                document[name] = _plain(part)
        return document
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value]


_PLAIN_FIELDS: dict[type, list[tuple[str, Any]]] = {}


def _fields(kind: type) -> list[tuple[str, Any]]:
    """Return field names with their defaults, or with MISSING, which equals no value."""
    if kind not in _PLAIN_FIELDS:
        _PLAIN_FIELDS[kind] = [
            (each.name, each.default_factory() if each.default_factory is not MISSING else each.default)
            for each in fields(kind)
        ]
    return _PLAIN_FIELDS[kind]


@cache
def _decoder(hint: Any) -> Decoder:
    """Return the function that decodes a value of this type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_decoder(inner)
    if origin is tuple:
        return _tuple_decoder(inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        each = _decoder(inner[1])
        return lambda raw: {key: each(value) for key, value in raw.items()}
    if isinstance(hint, str):
        raise Unreadable(f"unknown type: {hint}")
    if is_dataclass(hint):
        return _dataclass_decoder(hint)  # type: ignore[arg-type]
    if issubclass(hint, Enum):
        return hint
    if issubclass(hint, tuple):  # named tuple
        return lambda raw: hint(*raw)
    return lambda raw: raw


def _tuple_decoder(inner: tuple[Any, ...]) -> Decoder:
    if len(inner) == 2 and inner[1] is Ellipsis:
        each = _decoder(inner[0])
        return lambda raw: tuple([each(value) for value in raw])
    every = [_decoder(kind) for kind in inner]
    return lambda raw: tuple([each(value) for each, value in zip(every, raw, strict=True)])


def _union_decoder(inner: tuple[Any, ...]) -> Decoder:
    """Return a decoder for None or one of several dataclasses, distinguished by their required fields."""
    kinds = [kind for kind in inner if kind is not NoneType]
    if len(kinds) == 1:
        only = _decoder(kinds[0])
        return lambda raw: None if raw is None else only(raw)
    choices = [({name for name, default in _fields(kind) if default is MISSING}, kind) for kind in kinds]

    def read(raw: Any) -> Any:
        for needed, kind in choices:
            if needed <= raw.keys():
                return _decoder(kind)(raw)
        raise Unreadable(f"none of {[kind.__name__ for kind in kinds]}")

    return read


def _dataclass_decoder(kind: type) -> Decoder:
    hints: dict[str, Decoder] = {}

    def read(raw: Any) -> Any:
        if not hints:
            hints.update({name: _decoder(hint) for name, hint in get_type_hints(kind).items()})
        return kind(**{name: hints[name](value) for name, value in raw.items()})

    return read
