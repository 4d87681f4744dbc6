"""Map a service's validation errors to form fields."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.forms import Form

from berth.core.errors import BerthError, Invalid


@contextmanager
def form_errors(form: Form, fields: Mapping[str, str] | None = None) -> Iterator[None]:
    """Catch service errors in the block, and add them to the form."""
    try:
        yield
    except BerthError as error:
        add_form_errors(form, error, fields)


def add_form_errors(form: Form, error: BerthError, fields: Mapping[str, str] | None = None) -> None:
    """Add each problem to its form field, or to the entire form if it has no field."""
    if not isinstance(error, Invalid):
        form.add_error(None, error.detail)
        return
    for problem in error.problems:
        name, subpath = _form_field(problem.path, fields or {})
        if name not in form.fields and (head := _containing_field(name, form.fields)):
            name, subpath = head, name.partition(head)[2].removeprefix(".")
        text = f"{subpath}: " * bool(subpath) + problem.message
        text += problem.advice
        sentence = text if subpath else text[:1].upper() + text[1:]
        form.add_error(name if name in form.fields else None, sentence)


def _form_field(path: str, fields: Mapping[str, str]) -> tuple[str, str]:
    """Return the form field for the path's longest prefix in `fields`, and the rest of the path."""
    for end in (len(path), *(match.start() for match in reversed([*re.finditer(r"[.\[]", path)]))):
        if path[:end] in fields:
            return fields[path[:end]], path[end:].removeprefix(".")
    return path, ""


def _containing_field(path: str, fields: Mapping[str, object]) -> str:
    """Return the field that contains a path.

    For example, `plugins` contains `plugins[1].name`, and `pip` contains `environment.pip[0]`.
    """
    return next((step for step in re.split(r"[.\[]", path)[:2] if step in fields), "")
