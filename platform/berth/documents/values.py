"""Set or remove one value in a parsed document."""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value

Step = str | int
Location = tuple[Step, ...]

ITEMS_MAX = 1000
# Fields whose values are text, even if they look like numbers.
TEXT_FIELDS = ("env", "labels", "node_selector")
SETTING_FORM = "KEY=VALUE, such as priority=80, roles[0].gpu=2 or env.EPOCHS=3"
_STEP = re.compile(r"\.?([^.\[\]=]+)|\[(\d{1,4})\]")


def set_value(data: Any, at: Location, value: object) -> Any:
    """Return a copy with `value` at the location. Missing parents are created.

    Raises KeyError if the location leads through a scalar or past the end of a list.
    """
    if not at:
        return value
    step, *rest = at
    if isinstance(step, int):
        items = [] if data is None else data
        if not isinstance(items, list) or step > min(len(items), ITEMS_MAX):
            raise KeyError(step)
        inner = items[step] if step < len(items) else None
        return [*items[:step], set_value(inner, tuple(rest), value), *items[step + 1 :]]
    keys = {} if data is None else data
    if not isinstance(keys, dict):
        raise KeyError(step)
    return {**keys, step: set_value(keys.get(step), tuple(rest), value)}


def remove_value(data: Any, at: Location) -> Any:
    """Return a copy without the value at the location and without parents that become empty."""
    step, *rest = at
    if isinstance(step, int):
        if not isinstance(data, list) or step >= len(data):
            return data
        inside = [remove_value(data[step], tuple(rest))] if rest else []
        return [*data[:step], *inside, *data[step + 1 :]]
    if not isinstance(data, dict) or step not in data:
        return data
    if rest and (inner := remove_value(data[step], tuple(rest))) not in ({}, []):
        return {**data, step: inner}
    return {key: value for key, value in data.items() if key != step}


def value_at(data: Any, at: Sequence[Step]) -> Any:
    """Return the value at the location, or None if there is none."""
    for step in at:
        if isinstance(step, int):
            data = data[step] if isinstance(data, list) and step < len(data) else None
        else:
            data = data.get(step) if isinstance(data, dict) else None
    return data


def parse_setting(text: str) -> tuple[Location, object]:
    """Parse a setting such as `roles[0].gpu=2` into a location and a value.

    The value is parsed as YAML, unless the field is a text field. Raises Invalid if the setting is malformed.
    """
    where, sign, value = text.partition("=")
    at = parse_location(where.strip())
    if not sign or not at or isinstance(at[0], int):
        raise Invalid([Problem("set", "is not a valid setting", format_value(text), SETTING_FORM)])
    if len(at) > 1 and at[-2] in TEXT_FIELDS:
        return at, value
    try:
        return at, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError) as error:
        cause = str(error).splitlines()[0]
        message = f"has a value that is not valid YAML: {cause}"
        raise Invalid([Problem("set", message, format_value(text), SETTING_FORM)]) from None


def parse_location(path: str) -> Location:
    """Return the steps of a path such as `roles[0].gpu`, or () if the path is invalid."""
    steps: list[Step] = []
    end = 0
    while end < len(path):
        match = _STEP.match(path, end)
        if match is None or (end == 0 and path.startswith(".")):
            return ()
        steps.append(int(match[2]) if match[2] is not None else match[1])
        end = match.end()
    return tuple(steps)
