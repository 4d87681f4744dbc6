"""Locate the part of a value that cannot be pickled."""

import types
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle

DEPTH_MAX = 8
PARTS_MAX = 200


def unpicklable_part(value: object, name: str) -> tuple[str, object]:
    """Return the path to the innermost part that cannot be pickled, and the part itself."""
    seen: set[int] = set()
    for _ in range(DEPTH_MAX):
        seen.add(id(value))
        part = _first_unpicklable(value, seen)
        if part is None:
            break
        step, value = part
        name += step
    return name, value


def is_picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _first_unpicklable(value: object, seen: set[int]) -> tuple[str, object] | None:
    for number, (step, part) in enumerate(_inner_values(value)):
        if number >= PARTS_MAX:
            return None
        if id(part) not in seen and not is_picklable(part):
            return step, part
    return None


def _inner_values(value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    elif not isinstance(value, type | types.ModuleType):
        yield from ((f".{key}", part) for key, part in getattr(value, "__dict__", {}).items())


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f": the enclosing variable {name}", cell.cell_contents
        except ValueError:  # the enclosing variable is not set
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f": the global {name}", function.__globals__[name]
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f": the default of {name}", default
    for number, default in enumerate(function.__defaults__ or ()):
        yield f": default {number}", default
