"""Change one value in YAML text, and keep all other text and comments.

The result is parsed again and must be exactly the intended document.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import yaml

from berth.core.errors import BerthError
from berth.documents.reading import SafeLoader
from berth.documents.strict import read_text
from berth.documents.text_editor import TextEditor
from berth.documents.values import Location, remove_value, set_value, value_at

ABSENT: Any = object()
EDIT_ERRORS = (BerthError, yaml.YAMLError, LookupError, ValueError, AttributeError, TypeError, RecursionError)


class CannotEdit(BerthError):
    code: ClassVar[str] = "cannot-edit"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "This value can only be changed by editing the YAML text"


def edit_text(text: str, at: Location, value: object = ABSENT, *, order: Sequence[str] = ()) -> str:
    """Return the text with `value` set at a location. If `value` is omitted, remove the key or list item.

    `order` is the usual order of keys. Raises CannotEdit if the change cannot be made in place.
    """
    try:
        before = value_at(read_text(text), at)
        if isinstance(before, dict) and isinstance(value, dict) and value:
            return _edit_keys(text, at, before, value, order)
        if isinstance(before, list) and isinstance(value, list) and _starts_with_shared_items(before, value):
            return _edit_items(text, at, before, value, order)
        return _edit_one(text, at, value, order)
    except EDIT_ERRORS:
        raise CannotEdit from None


def rename_key(text: str, at: Location, name: str) -> str:
    """Return the text with the key at a location renamed.

    Raises CannotEdit if there is no such key, or if its parent already contains the new name.
    """
    try:
        before, top = read_text(text), yaml.compose(text, Loader=SafeLoader)
        parent = value_at(before, at[:-1])
        if top is None or not isinstance(parent, dict) or at[-1] not in parent or name in parent:
            raise CannotEdit
        changed = TextEditor(text, ()).rename(top, at, name)
        renamed = {name if key == at[-1] else key: value for key, value in parent.items()}
        if read_text(changed) != set_value(before, at[:-1], renamed):
            raise CannotEdit
    except EDIT_ERRORS:
        raise CannotEdit from None
    return changed


def _edit_keys(
    text: str, at: Location, before: dict[Any, Any], value: dict[Any, Any], order: Sequence[str]
) -> str:
    for key in before:
        if key not in value:
            text = _edit_one(text, (*at, key), ABSENT, order)
    for key, inner in value.items():
        text = edit_text(text, (*at, key), inner, order=order)
    return text


def _edit_items(text: str, at: Location, before: list[Any], value: list[Any], order: Sequence[str]) -> str:
    for number in reversed(range(len(before))):
        if before[number] not in value:
            text = _edit_one(text, (*at, number), ABSENT, order)
    remaining = sum(item in value for item in before)
    for number, item in enumerate(value[remaining:], remaining):
        text = _edit_one(text, (*at, number), item, order)
    return text


def _edit_one(text: str, at: Location, value: object, order: Sequence[str]) -> str:
    data = read_text(text)
    intended = remove_value(data, at) if value is ABSENT else set_value(data, at, value)
    if intended == data and _have_same_type(value_at(intended, at), value_at(data, at)):
        return text
    top = yaml.compose(text, Loader=SafeLoader)
    editor = TextEditor(text, order)
    if value is not ABSENT:
        changed = editor.put(top, at, value)
    elif top is not None:
        changed = editor.remove(top, data, at)
    else:
        return text
    if read_text(changed) != (intended or None):
        raise CannotEdit
    return changed


def _starts_with_shared_items(before: list[Any], value: list[Any]) -> bool:
    """Return whether `value` begins with the items of `before` that it still contains, in the same order.

    Return False if `value` contains none of them, or if either list contains anything but scalars.
    """
    remaining = [item for item in before if item in value]
    all_scalars = not any(isinstance(item, dict | list) for item in (*before, *value))
    return all_scalars and bool(remaining) and value[: len(remaining)] == remaining


def _have_same_type(one: object, other: object) -> bool:
    """Return whether two equal values also have the same type. In Python, `1 == True`."""
    return type(one) is type(other)
