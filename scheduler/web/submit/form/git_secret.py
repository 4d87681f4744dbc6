"""Convert the field for a Git secret into `secret` and `personal`."""

from collections.abc import Mapping, Sequence
from typing import Any

from berth.documents import edit_text
from berth.documents.edits import ABSENT
from berth.documents.values import Location, value_at
from scheduler.web.submit.form.field_kinds import PERSONAL_PREFIX


def format_git_secret(at: Location, data: Mapping[str, Any]) -> str | None:
    """Return the name of the Git secret as the form shows it, with a prefix if the secret is personal.

    Return None if the form cannot show the document's values.
    """
    name, personal = value_at(data, at), value_at(data, (*at[:-1], "personal"))
    if isinstance(name, dict | list) or personal not in (None, True, False):
        return None
    text = "" if name is None else str(name)
    return f"{PERSONAL_PREFIX}{text}" if personal else text


def write_git_secret(text: str, at: Location, typed: str, order: Sequence[str]) -> str:
    """Set the secret in the document's text. Raises CannotEdit if that is not possible in place."""
    name = typed.strip()
    is_personal = name.startswith(PERSONAL_PREFIX)
    text = edit_text(text, at, name.removeprefix(PERSONAL_PREFIX) or ABSENT, order=order)
    return edit_text(text, (*at[:-1], "personal"), True if is_personal else ABSENT, order=order)
