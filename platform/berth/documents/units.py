"""Durations and amounts of memory in documents, as text with a unit or as numbers."""

from collections.abc import Callable, Mapping
from typing import Any

from berth.core.spec.values.quantities import expand_duration, parse_memory

DURATIONS, AMOUNTS_OF_MEMORY = ("max_runtime",), ("memory_mib", "gpu_memory_mib")
UNITS_OF_TIME = (("d", 86_400), ("h", 3600), ("m", 60))
MIB_PER_GIB = 1024


def write_units(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with values such as `8h` and `4Gi` instead of whole numbers.

    Numbers that are not multiples of a minute or a GiB are unchanged.
    """
    return _convert(document, _duration_text, _memory_text)


def read_units(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with seconds and MiB instead of text with a unit. Invalid text is unchanged."""
    return _convert(document, expand_duration, _memory_mib)


def _convert(
    document: Mapping[str, Any], duration: Callable[[Any], Any], memory: Callable[[Any], Any]
) -> dict[str, Any]:
    converted = _convert_values(document, DURATIONS, duration)
    if isinstance(document.get("roles"), list):
        converted["roles"] = [
            _convert_values(role, AMOUNTS_OF_MEMORY, memory) if isinstance(role, Mapping) else role
            for role in document["roles"]
        ]
    return converted


def _convert_values(
    values: Mapping[str, Any], keys: tuple[str, ...], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    return {key: convert(value) if key in keys else value for key, value in values.items()}


def _duration_text(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return value
    return next((f"{value // size}{unit}" for unit, size in UNITS_OF_TIME if value % size == 0), value)


def _memory_text(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value % MIB_PER_GIB:
        return value
    return f"{value // MIB_PER_GIB}Gi"


def _memory_mib(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_memory(value)
    except ValueError:
        return value
