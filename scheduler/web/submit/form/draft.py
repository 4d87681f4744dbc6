"""Keep a form and a document in sync.

If a field differs from the last matching document, the user has edited the field, so its value is written
into the current document. The form is then rebuilt from the document. Comments and parts of the document
without a form field are preserved.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from berth.core.errors import Invalid
from berth.core.problems import Problem, join_path
from berth.core.spec import RoleSpec, WorkloadSpec
from berth.core.spec.parsing.manifest import is_manifest
from berth.documents import CannotEdit, SourceLines, edit_text, read_document, rename_key
from berth.documents.edits import ABSENT
from berth.documents.values import Location, parse_location, value_at
from scheduler.web.submit.form import replicas
from scheduler.web.submit.form.array_text import MATRIX, write_matrix
from scheduler.web.submit.form.field_kinds import GIT_SECRET, InvalidFieldText, select_in_current_order
from scheduler.web.submit.form.fields import (
    MAX_REPLICAS,
    MIN_REPLICAS,
    FormChoices,
    FormField,
    FormPart,
    build_parts,
)
from scheduler.web.submit.form.git_secret import format_git_secret, write_git_secret

PREFIX = "f:"
CODE = "code"  # key of the section that specifies the pods' files
ORDER = tuple(dict.fromkeys([*WorkloadSpec.model_fields, *RoleSpec.model_fields]))
SET = "set"  # form action that sets values in the document (see `apply_form_action`)
RENAME = "rename"  # form action that renames a key of the document
TEXT_ONLY_HINT = "This value can only be edited in the document."


# Paths in the document with their new values. None removes a value.
DocumentEdits = Sequence[tuple[str, Any]]


@dataclass
class Draft:
    """Document that is being edited as text and in form fields.

    `data` is None while the text is invalid. `agreed` is the last valid text.
    """

    text: str
    agreed: str
    data: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)  # errors in the text or in fields
    line: int | None = None  # line of the syntax error
    typed: dict[str, str] = field(default_factory=dict)  # invalid field text by path

    @property
    def form_data(self) -> dict[str, Any] | None:
        """Data that the form shows: the last valid version of the document, or None if there is none."""
        return self.data if self.data is not None else _parse_or_none(self.agreed)

    @property
    def has_form(self) -> bool:
        """Whether a form can edit the document. Invalid text and manifests of other systems can be edited
        only as text.
        """
        form_data = self.form_data
        return form_data is not None and not is_manifest(form_data)

    def problems_elsewhere(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return those problems of the document that are not in fields with invalid text.

        If the document is not valid YAML, return no problems.
        """
        return [] if self.data is None else [each for each in problems if each.path not in self.typed]

    def parts(self, offer: FormChoices) -> list[FormPart]:
        return build_parts(self.form_data or {}, offer) if self.has_form else []


def open_draft(text: str) -> Draft:
    draft = Draft(text, text)
    _parse_draft(draft)
    return draft


def open_submitted_document(post: QueryDict) -> Draft:
    """Open the submitted document as a draft, ignoring the form's fields."""
    draft = open_draft(_normalize_newlines(post.get("document", "")))
    if draft.data is None:
        draft.agreed = _normalize_newlines(post.get("agreed", draft.text))
    return draft


def read_draft(post: QueryDict, offer: FormChoices) -> Draft:
    """Merge the submitted form and document into a draft."""
    text = _normalize_newlines(post.get("document", ""))
    draft = Draft(text, _normalize_newlines(post.get("agreed", text)))
    _parse_draft(draft)
    before = _parse_or_none(draft.agreed)
    if before is None or is_manifest(before):
        draft.agreed = draft.text if draft.data is not None else draft.agreed
        return draft
    places = SourceLines.from_text(draft.agreed)
    for form_field in _all_fields(build_parts(before, offer)):
        if (change := _field_change(form_field, before, places, post)) is not None:
            _apply_change(draft, form_field, before, change)
    if draft.data is not None:
        draft.agreed = draft.text
    return draft


def apply_form_action(draft: Draft, form_action: str, *, mail: str = "") -> None:
    """Apply the effect of a form button to the document.

    `add:roles` adds a role, `remove:roles[1]` removes one, `up:pools[1]` and `down:pools[0]` move a value
    within its list, `code:TREE` sets the code, `rename:roles[0].gpus:gpu` renames a key, and
    `set:[["priority", 60]]` sets values.
    """
    verb, _, path = form_action.partition(":")
    if verb == SET:
        _set_values(draft, path)
        return
    if verb == RENAME:
        _rename_key(draft, path)
        return
    at = (CODE,) if verb == CODE else parse_location(path)
    if draft.data is None or not at or verb not in ("add", "remove", "up", "down", CODE):
        return
    value: Any = ABSENT
    if verb == CODE:
        value = {"tree": path}
    elif verb in ("up", "down"):
        value = _move_value(value_at(draft.data, at[:-1]), at[-1], -1 if verb == "up" else 1)
        at = at[:-1]
        if value is None:
            return
    elif verb == "add":
        there = value_at(draft.data, at)
        count = len(there) if isinstance(there, list) else 0
        role = {"name": f"role-{count + 1}", "replicas": 1}
        value = {"to": mail} if path == "notifications" else role
        at = (*at, count)
    try:
        draft.text = draft.agreed = edit_text(draft.text, at, value, order=ORDER)
    except CannotEdit:
        draft.problems.append(Problem(join_path(at), TEXT_ONLY_HINT))
    _parse_draft(draft)


def _move_value(values: Any, number: Any, by: int) -> list[Any] | None:
    """Return a copy of the list with one value moved up or down. Return None if the value cannot be moved."""
    if not isinstance(values, list) or not isinstance(number, int):
        return None
    if not (0 <= number < len(values) and 0 <= number + by < len(values)):
        return None
    moved = [*values]
    moved[number], moved[number + by] = moved[number + by], moved[number]
    return moved


def apply_edits(text: str, edits: DocumentEdits) -> str:
    """Apply edits to the document's text. Raises CannotEdit if an edit cannot be made in place."""
    for path, value in edits:
        text = edit_text(text, parse_location(path), ABSENT if value is None else value, order=ORDER)
    return text


def _set_values(draft: Draft, encoded: str) -> None:
    """Apply edits that are encoded as JSON. Invalid input is ignored."""
    try:
        edits = [(str(path), value) for path, value in json.loads(encoded)]
    except (ValueError, TypeError, RecursionError):
        return
    if draft.data is None:
        return
    try:
        draft.text = draft.agreed = apply_edits(draft.text, edits)
    except CannotEdit:
        draft.problems.append(Problem("", TEXT_ONLY_HINT))
    _parse_draft(draft)


def _rename_key(draft: Draft, encoded: str) -> None:
    """Rename a key of the document.

    `encoded` is the key's path and new name as `PATH:NAME`. Invalid input is ignored.
    """
    path, _, name = encoded.rpartition(":")
    with suppress(CannotEdit):
        draft.text = draft.agreed = rename_key(draft.text, parse_location(path), name)
        _parse_draft(draft)


def field_text(form_field: FormField, data: Mapping[str, Any], places: SourceLines) -> str | None:
    """Return the text of a form field, or None if the value can only be edited in the document."""
    if form_field.at[-1] in (MIN_REPLICAS, MAX_REPLICAS):
        return replicas.format_replicas(form_field.at, data, places)
    if form_field.kind is GIT_SECRET:
        return format_git_secret(form_field.at, data)
    return form_field.kind.format_value(value_at(data, form_field.at), places.scalars.get(form_field.at))


def selected_values(form_field: FormField, data: Mapping[str, Any]) -> list[str]:
    now = value_at(data, form_field.at)
    if now is None:
        return [*form_field.initial]
    return [one for one in now if isinstance(one, str)] if isinstance(now, list) else []


def _field_change(
    form_field: FormField, before: Mapping[str, Any], places: SourceLines, post: QueryDict
) -> Any:
    """Return the submitted text or selection of a field, or None if the user has not changed it."""
    name = PREFIX + form_field.path
    if name not in post:
        return None
    if form_field.many:
        chosen = [one for one in post.getlist(name) if one]
        return chosen if set(chosen) != set(selected_values(form_field, before)) else None
    typed = _normalize_newlines(post.get(name, "")).rstrip("\n")
    return typed if typed != (field_text(form_field, before, places) or "") else None


def _apply_change(draft: Draft, form_field: FormField, before: Mapping[str, Any], change: Any) -> None:
    """Write a changed field to the document. Invalid text stays in the field with an error."""
    if draft.data is None:
        draft.typed[form_field.path] = change if isinstance(change, str) else ""
        return
    try:
        if form_field.at[-1] in (MIN_REPLICAS, MAX_REPLICAS):
            draft.text = replicas.write_replicas(draft.text, draft.data, form_field.at, change, ORDER)
        elif form_field.kind is GIT_SECRET:
            draft.text = write_git_secret(draft.text, form_field.at, change, ORDER)
        elif form_field.kind is MATRIX:
            matrix = MATRIX.parse_text(change, None)
            draft.text = write_matrix(draft.text, form_field.at, matrix, draft.data, ORDER)
        else:
            now = value_at(draft.data, form_field.at)
            value = (
                select_in_current_order(change, now)
                if form_field.many
                else form_field.kind.parse_text(change, now)
            )
            draft.text = edit_text(draft.text, form_field.at, value, order=ORDER)
    except InvalidFieldText as fault:
        draft.typed[form_field.path] = change
        draft.problems.append(Problem(form_field.path, fault.message, fault.received, fault.allowed))
    except CannotEdit:
        draft.typed[form_field.path] = change if isinstance(change, str) else ""
        draft.problems.append(Problem(form_field.path, TEXT_ONLY_HINT))
    _parse_draft(draft)


def _parse_draft(draft: Draft) -> None:
    try:
        draft.data = read_document(draft.text)
    except Invalid as error:
        draft.data = None
        draft.problems = [*error.problems]
        draft.line = error.extra.get("line")


def _parse_or_none(text: str) -> dict[str, Any] | None:
    try:
        return read_document(text)
    except Invalid:
        return None


def _all_fields(parts: list[FormPart]) -> Iterator[FormField]:
    for part in parts:
        yield from part.fields
        yield from part.more


def find_field(path: str, names: Mapping[str, Any]) -> str:
    """Return the path of the field that shows the error at `path`, or "" if no field does."""
    at = parse_location(path)
    for length in range(len(at), 0, -1):
        for inner in _field_paths(at[:length]):
            if inner in names:
                return inner
    return ""


def _field_paths(at: Location) -> Iterator[str]:
    yield join_path(at)
    if at == ("array",):
        yield join_path((*at, "tasks"))
    if at == (CODE, "git"):
        yield join_path((*at, "url"))
    if at == (CODE, "git", "personal"):
        yield join_path((*at[:-1], "secret"))
    if at[-1] in ("min", "replicas"):
        yield join_path((*at[:-1], MIN_REPLICAS))
    if at[-1] == "max":
        yield join_path((*at[:-1], MAX_REPLICAS))
    if at[-1] == "topology":
        yield join_path((*at, "required"))


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
