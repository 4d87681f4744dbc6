"""List the values that an audit entry changed, with their labels."""

from collections.abc import Mapping
from typing import Any

from berth.core.wording.words import token_to_words
from projects.models import Audit

UNLIMITED = "∞"
LABELS = {"gpus": "GPUs", "gpu hours": "GPU-hours", "warn at": "Alert thresholds (%)"}
RESOURCES = {"gpu": ("GPU", "GPUs"), "cpu": ("CPU", "CPU cores"), "memory mib": ("memory", "memory (MiB)")}


def format_changes(row: Audit) -> str:
    return "; ".join(f"{key} {before or 'none'} → {after or 'none'}" for key, before, after in changes(row))


def changes(row: Audit) -> list[tuple[str, str, str]]:
    """Return the label, old value and new value of each value that the action changed."""
    return list_differences(row.before or {}, row.after or {})


def list_differences(
    old_values: Mapping[str, Any], new_values: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    before, after = _flatten(old_values), _flatten(new_values)
    is_creation = all(value is None for value in before.values())
    values = [
        (key, "" if is_creation else _format_value(before, key), _format_value(after, key))
        for key in dict.fromkeys([*after, *before])
    ]
    if is_creation:  # a new quota has only the bounds that were set
        values = [value for value in values if value[2] != UNLIMITED]
    return [(field_label(key), old, new) for key, old, new in values if old != new]


def field_label(name: str) -> str:
    """Return the label of a flattened key: "GPU limit" for "limit gpu"."""
    for key, (noun, amount) in RESOURCES.items():
        if name == key:
            return amount[0].upper() + amount[1:]
        if name.endswith(f" {key}"):
            kind = name.removesuffix(f" {key}")
            unit = " (MiB)" if key == "memory mib" and kind != "weight" else ""
            return f"{noun[0].upper()}{noun[1:]} {kind}{unit}"
    return LABELS.get(name) or name[:1].upper() + name[1:]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn {"limit": {"gpu": 4}} into {"limit gpu": 4}."""
    flat_values: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix} {key}".strip().replace("_", " ")
        flat_values |= _flatten(value, name) if isinstance(value, dict) else {name: value}
    return flat_values


def _format_value(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    if value is None:
        return UNLIMITED if key in values and _is_amount(key) else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if key == "role":
        return token_to_words(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_amount(key: str) -> bool:
    """Return whether a flattened key is a quota or limit, where null means unlimited."""
    return key in RESOURCES or key.removeprefix("limit ") in RESOURCES
