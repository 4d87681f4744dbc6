"""Encode snapshots as JSON and decode them without loss. Fields with default values are omitted."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from scheduler.engine.model import Node, RoleGroup, Snapshot, Workload

Decoder = Callable[[Any], Any]
Encoded = dict[str, tuple[object, str]]  # value and its JSON text, by field name
MAX_TREES = 1000
LARGE_FIELDS = ("nodes", "workloads")  # snapshot fields that are long and mostly unchanged between cycles


class UnreadableSnapshot(ValueError):
    """Raised for a snapshot from an engine version with different fields."""


class SnapshotEncoder:
    """JSON encoder for snapshots that reuses the encoded text of unchanged workloads and nodes."""

    def __init__(self) -> None:
        self._encoded: dict[str, Encoded] = {}
        # Encoded trees by the tree's `id()`. Each entry keeps its tree alive.
        self._trees: dict[int, tuple[RoleGroup, str]] = {}

    def encode_part(self, snapshot: Snapshot, count: int) -> bool:
        """Encode up to `count` new or changed workloads in advance. Return whether any remain."""
        cache, encoded = self._encoded.setdefault("workloads", {}), 0
        for item in snapshot.workloads:
            cached = cache.get(item.name)
            if cached is None or cached[0] is not item:
                if encoded == count:
                    return True
                cache[item.name] = item, self._encode_workload(item)
                encoded += 1
        return False

    def encode(self, snapshot: Snapshot) -> str:
        parts = []
        for name, default in _fields_with_defaults(Snapshot):
            value = getattr(snapshot, name)
            if name in LARGE_FIELDS and value:
                text = f"[{','.join(self._encode_each(name, value))}]"
            elif value == default:
                continue
            else:
                text = to_json(value)
            parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"

    def _encode_each(self, kind: str, values: Sequence[Workload | Node]) -> Iterator[str]:
        before = self._encoded.get(kind, {})
        now = self._encoded[kind] = {}
        for item in values:
            cached = before.get(item.name)
            if cached is None or cached[0] is not item:
                text = self._encode_workload(item) if isinstance(item, Workload) else to_json(item)
                cached = item, text
            now[item.name] = cached
            yield cached[1]

    def _encode_workload(self, workload: Workload) -> str:
        """Encode the workload as JSON, with the tree of roles as the last key."""
        document = _to_json_value(workload)
        tree = document.pop("tree")
        return f'{to_json(document)[:-1]},"tree":{self._encode_tree(tree)}}}'

    def _encode_tree(self, tree: RoleGroup) -> str:
        cached = self._trees.get(id(tree))
        if cached is None:
            if len(self._trees) >= MAX_TREES:
                self._trees.clear()
            cached = self._trees[id(tree)] = tree, to_json(tree)
        return cached[1]


def to_json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), default=_to_json_value)


def decode_snapshot(document: Any) -> Snapshot:
    """Return the snapshot. Raises UnreadableSnapshot if the engine cannot read the document."""
    try:
        snapshot: Snapshot = _decoder(Snapshot)(document)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UnreadableSnapshot(f"{type(error).__name__}: {error}") from None
    return snapshot


def _to_json_value(value: Any) -> Any:
    kind = type(value)
    if kind in _FIELDS_BY_TYPE or is_dataclass(value):
        document = {}
        for name, default in _fields_with_defaults(kind):
            part = getattr(value, name)
            if part is not default and part != default:
                document[name] = part
        return document
    return dict(value) if isinstance(value, Mapping) else list(value)


_FIELDS_BY_TYPE: dict[type, list[tuple[str, Any]]] = {}


def _fields_with_defaults(kind: type) -> list[tuple[str, Any]]:
    """Return the field names with their defaults, which are MISSING for required fields."""
    if kind not in _FIELDS_BY_TYPE:
        _FIELDS_BY_TYPE[kind] = [
            (
                field_.name,
                field_.default_factory() if field_.default_factory is not MISSING else field_.default,
            )
            for field_ in fields(kind)
        ]
    return _FIELDS_BY_TYPE[kind]


@cache
def _decoder(hint: Any) -> Decoder:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_decoder(inner)
    if origin is tuple:
        return _tuple_decoder(inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        decode_item = _decoder(inner[1])
        return lambda raw: {key: decode_item(value) for key, value in raw.items()}
    if isinstance(hint, str):
        raise UnreadableSnapshot(f"unknown type: {hint}")
    if is_dataclass(hint):
        return _dataclass_decoder(hint)  # type: ignore[arg-type]
    if issubclass(hint, Enum):
        return hint
    if issubclass(hint, tuple):  # a named tuple
        return lambda raw: hint(*raw)
    return lambda raw: raw


def _tuple_decoder(inner: tuple[Any, ...]) -> Decoder:
    if len(inner) == 2 and inner[1] is Ellipsis:
        decode_item = _decoder(inner[0])
        return lambda raw: tuple([decode_item(value) for value in raw])
    every = [_decoder(kind) for kind in inner]
    return lambda raw: tuple([decode_item(value) for decode_item, value in zip(every, raw, strict=True)])


def _union_decoder(inner: tuple[Any, ...]) -> Decoder:
    """Return a decoder for a value that is None or one of several dataclasses, which are distinguished by
    their required fields.
    """
    kinds = [kind for kind in inner if kind is not NoneType]
    if len(kinds) == 1:
        only = _decoder(kinds[0])
        return lambda raw: None if raw is None else only(raw)
    choices = [
        ({name for name, default in _fields_with_defaults(kind) if default is MISSING}, kind)
        for kind in kinds
    ]

    def read(raw: Any) -> Any:
        for needed, kind in choices:
            if needed <= raw.keys():
                return _decoder(kind)(raw)
        raise UnreadableSnapshot(
            f"the value matches none of these types: {', '.join(kind.__name__ for kind in kinds)}"
        )

    return read


def _dataclass_decoder(kind: type) -> Decoder:
    hints: dict[str, Decoder] = {}

    def read(raw: Any) -> Any:
        if not hints:
            hints.update({name: _decoder(hint) for name, hint in get_type_hints(kind).items()})
        return kind(**{name: hints[name](value) for name, value in raw.items()})

    return read
