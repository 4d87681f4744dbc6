"""Map a service's validation errors to form fields."""

import re
from collections.abc import Mapping

from django.forms import Form

from berth.core.errors import BerthError, Invalid


def take_faults(form: Form, error: BerthError, fields: Mapping[str, str] | None = None) -> None:
    """Add each problem to its form field, or to the form if it has no field."""
    if not isinstance(error, Invalid):
        form.add_error(None, error.detail)
        return
    for problem in error.problems:
        name = (fields or {}).get(problem.path, problem.path)
        inside = ""
        if name not in form.fields and (head := _outermost(name, form.fields)):
            name, inside = head, name.partition(head)[2].removeprefix(".")
        text = f"{inside}: " * bool(inside) + problem.message
        text += problem.advice
        sentence = text if inside else text[:1].upper() + text[1:]
        form.add_error(name if name in form.fields else None, sentence)


def _outermost(path: str, fields: Mapping[str, object]) -> str:
    """Return the field that contains a path: plugins for plugins[1].name, pip for environment.pip[0]."""
    return next((step for step in re.split(r"[.\[]", path)[:2] if step in fields), "")
