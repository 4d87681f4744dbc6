"""Map a service's validation errors to form fields."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from django.forms import ChoiceField, Field, Form

from berth.core.errors import BerthError, Invalid
from berth.core.problems import Problem
from berth.core.wording.problem_sentences import describe_problem
from berth.server.web.error_sentences import NAME_RULE, REQUIRED
from berth.server.web.error_sentences import describe_problem as describe_field_problem

NOT_VALID = "is not a valid "
ENTRY = re.compile(r"\[(\d+)\](?:\.(.+))?")
HINT_MIN = 60  # shorter descriptions of the allowed values are always shown


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
    labels = {
        path: str(form.fields[name].label) for path, name in (fields or {}).items() if name in form.fields
    }
    for problem in error.problems:
        name, subpath = _split_field_path(form, problem.path, fields or {})
        if name in form.fields:
            form.add_error(name, _field_sentence(form.fields[name], subpath, problem, labels))
        else:
            form.add_error(None, describe_problem(problem))


def add_remaining_errors(
    form: Form,
    check: Callable[[], object],
    fields: Mapping[str, str] | None = None,
    *,
    invalid: Collection[str] | None = None,
) -> None:
    """Add the errors that `check` finds in valid fields, so that a form shows all errors together.

    `invalid` contains the fields that already have errors, by default those of the form.
    """
    reported = set(form.errors) if invalid is None else invalid
    try:
        check()
    except Invalid as error:
        others = [
            each for each in error.problems if field_name(form, each.path, fields or {}) not in reported
        ]
        add_form_errors(form, Invalid(others), fields)
    except BerthError as error:
        add_form_errors(form, error)


def field_name(form: Form, path: str, fields: Mapping[str, str]) -> str:
    """Return the name of the form field for a problem's path, or the path if there is no such field."""
    return _split_field_path(form, path, fields)[0]


def _split_field_path(form: Form, path: str, fields: Mapping[str, str]) -> tuple[str, str]:
    name, subpath = _form_field(path, fields)
    if name not in form.fields and (head := _containing_field(name, form.fields)):
        name, subpath = head, re.split(rf"\b{head}\b", name, maxsplit=1)[1].removeprefix(".")
    return name, subpath


def _field_sentence(field: Field, subpath: str, problem: Problem, labels: Mapping[str, str]) -> str:
    has_hint = field.help_text and len(problem.allowed) > HINT_MIN
    is_name = NAME_RULE.fullmatch(problem.allowed) is not None
    if problem.message.startswith(NOT_VALID) and has_hint and not subpath and not is_name:
        return f"Enter a valid {problem.message.removeprefix(NOT_VALID)}."  # the help text says what is valid
    label = str(field.label or "") if problem.message in REQUIRED and not subpath else ""
    if problem.message.startswith(REQUIRED) and not label:
        problem = replace(problem, allowed="")
    is_choice = isinstance(field, ChoiceField)
    sentence = describe_field_problem(problem, label, choice=is_choice, labels=labels).text
    sentence = _replace_paths_with_labels(sentence, labels)
    if entry := ENTRY.fullmatch(subpath):
        key = f", {entry[2]}" if entry[2] else ""
        return f"Entry {int(entry[1]) + 1}{key}: {sentence}"
    return f"{subpath}: {sentence}" if subpath else sentence


def _replace_paths_with_labels(sentence: str, labels: Mapping[str, str]) -> str:
    for path, label in labels.items():
        if "_" in (key := path.rpartition(".")[2]):
            sentence = re.sub(rf"\b({re.escape(path)}|{re.escape(key)})\b", label, sentence)
    return sentence


def _form_field(path: str, fields: Mapping[str, str]) -> tuple[str, str]:
    """Return the form field for the longest prefix of `path` in `fields`, and the rest of the path.

    If `fields` contains no prefix, return the path itself and "".
    """
    for end in (len(path), *(match.start() for match in reversed([*re.finditer(r"[.\[]", path)]))):
        if path[:end] in fields:
            return fields[path[:end]], path[end:].removeprefix(".")
    return path, ""


def _containing_field(path: str, fields: Mapping[str, object]) -> str:
    """Return the form field that contains the path, or "".

    For example, `plugins` contains `plugins[1].name`, and `pip` contains `environment.pip[0]`.
    """
    return next((step for step in re.split(r"[.\[]", path)[:2] if step in fields), "")
