"""Durations and amounts of memory in documents, as text with a unit or as numbers."""

from collections.abc import Callable, Mapping
from typing import Any

from berth.core.spec.values.quantities import expand_duration, parse_memory

DURATIONS = ("max_runtime", "idle_timeout", "burst_after", "preemption_delay", "keep_failed_pod")
AMOUNTS_OF_MEMORY = ("memory_mib", "gpu_memory_mib")
UNITS_OF_TIME = (("d", 86_400), ("h", 3600), ("m", 60))


def with_units(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with whole-minute durations as text, such as `8h`."""
    return _convert_values(document, DURATIONS, _duration_text)


def without_units(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with durations in seconds and memory in MiB. Invalid text is unchanged."""
    return _convert_memory(_convert_values(document, DURATIONS, expand_duration))


def _convert_memory(part: Mapping[str, Any]) -> dict[str, Any]:
    """Convert all amounts of memory to MiB."""
    converted = _convert_values(part, AMOUNTS_OF_MEMORY, _memory_mib)
    for key in ("roles", "groups"):
        if isinstance(part.get(key), list):
            converted[key] = [
                _convert_memory(each) if isinstance(each, Mapping) else each for each in part[key]
            ]
    if isinstance(part.get("limit"), Mapping):
        converted["limit"] = _convert_memory(part["limit"])
    return converted


def _convert_values(
    values: Mapping[str, Any], keys: tuple[str, ...], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    return {key: convert(value) if key in keys else value for key, value in values.items()}


def _duration_text(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return value
    return next((f"{value // size}{unit}" for unit, size in UNITS_OF_TIME if value % size == 0), value)


def _memory_mib(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_memory(value)
    except ValueError:
        return value
