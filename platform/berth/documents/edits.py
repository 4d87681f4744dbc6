"""Change one part of a YAML text and keep the rest, comments included.

The text is cut at the positions of parsed nodes, and the result is parsed again. If it does not have exactly
the intended value, the edit is refused.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import yaml

from berth.core.errors import BerthError
from berth.documents.cuts import Cuts
from berth.documents.reading import SafeLoader
from berth.documents.strict import read_text
from berth.documents.values import Location, assigned, removed, value_at

ABSENT: Any = object()
BROKEN = (BerthError, yaml.YAMLError, LookupError, ValueError, AttributeError, TypeError, RecursionError)


class CannotEdit(BerthError):
    code: ClassVar[str] = "cannot-edit"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "This part is written in a way that only its text can change"


def edited(text: str, at: Location, value: object = ABSENT, *, order: Sequence[str] = ()) -> str:
    """The text in which `value` stands at this place, or, without one, in which nothing does.

    `order` says where among its neighbours a new key goes. Raises CannotEdit.
    """
    try:
        before = value_at(read_text(text), at)
        if isinstance(before, dict) and isinstance(value, dict) and value:
            return _keys(text, at, before, value, order)
        if isinstance(before, list) and isinstance(value, list) and _are_much_alike(before, value):
            return _items(text, at, before, value, order)
        return _once(text, at, value, order)
    except BROKEN:
        raise CannotEdit from None


def _keys(
    text: str, at: Location, before: dict[Any, Any], value: dict[Any, Any], order: Sequence[str]
) -> str:
    for key in before:
        if key not in value:
            text = _once(text, (*at, key), ABSENT, order)
    for key, inner in value.items():
        text = edited(text, (*at, key), inner, order=order)
    return text


def _items(text: str, at: Location, before: list[Any], value: list[Any], order: Sequence[str]) -> str:
    for number in reversed(range(len(before))):
        if before[number] not in value:
            text = _once(text, (*at, number), ABSENT, order)
    remaining = sum(one in value for one in before)
    for number, one in enumerate(value[remaining:], remaining):
        text = _once(text, (*at, number), one, order)
    return text


def _once(text: str, at: Location, value: object, order: Sequence[str]) -> str:
    data = read_text(text)
    meant = removed(data, at) if value is ABSENT else assigned(data, at, value)
    if meant == data and _same_kinds(value_at(meant, at), value_at(data, at)):
        return text
    top = yaml.compose(text, Loader=SafeLoader)
    cuts = Cuts(text, order)
    if value is not ABSENT:
        changed = cuts.put(top, at, value)
    elif top is not None:
        changed = cuts.without(top, data, at)
    else:
        return text
    if read_text(changed) != (meant or None):
        raise CannotEdit
    return changed


def _are_much_alike(before: list[Any], value: list[Any]) -> bool:
    """Return whether two lists of plain values share a beginning, after removals from the first."""
    remaining = [one for one in before if one in value]
    plain = not any(isinstance(one, dict | list) for one in (*before, *value))
    return plain and bool(remaining) and value[: len(remaining)] == remaining


def _same_kinds(one: object, other: object) -> bool:
    """Return whether two equal values also have the same types: 1 == True in Python."""
    return type(one) is type(other)
