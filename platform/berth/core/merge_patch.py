"""JSON merge patches (RFC 7396), and the differences between two documents."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

VALUE_MAX = 60
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def apply_patch(document: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the patch applied.

    A null value removes its key. Lists are replaced as a whole.
    """
    merged = dict(document)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = apply_patch(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def find_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the smallest patch that turns `before` into `after`. Values of None are treated as absent."""
    patch: dict[str, Any] = {}
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if below := find_patch(old, new):
                patch[key] = below
        elif old != new:
            patch[key] = new
    return patch


def differences(
    before: Any, after: Any, *path: str | int
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Yield the path, previous value and new value of each change.

    An absent value is None. Lists of different lengths are treated as one value.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({**before, **after}):
            yield from differences(before.get(key), after.get(key), *path, key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, *path, index)
    elif before != after:
        yield path, before, after


def format_difference(path: str, before: Any, after: Any) -> str:
    """Format a changed value on one line, such as `priority: 50 -> 60`."""
    return f"{path}: {format_value_briefly(before)} -> {format_value_briefly(after)}"


def format_value_briefly(value: Any) -> str:
    """Format a value as at most 60 characters on one line. Names in a list, such as pools, are separated by
    commas.
    """
    if value is None:
        return "not set"
    if (
        value
        and isinstance(value, list)
        and all(isinstance(name, str) and NAME.fullmatch(name) for name in value)
    ):
        text = ", ".join(value)
    else:
        text = value if isinstance(value, str) and value.isprintable() else json.dumps(value)
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 3]}..."
