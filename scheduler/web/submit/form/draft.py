"""Keep a form and a document in sync.

Every request contains both, and the last text on which they agreed. A field that differs from this text has
been edited, and the edit is written into the current document. Then the form is read from the document. Thus
either side or both may be ahead, and comments and parts without a field stay as written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from berth.core.errors import Invalid
from berth.core.problems import Problem, path_of
from berth.core.spec import RoleSpec, WorkloadSpec
from berth.core.spec.manifest import is_manifest
from berth.documents import CannotEdit, Places, edited, read_document
from berth.documents.edits import ABSENT
from berth.documents.values import Location, location_of, value_at
from scheduler.web.submit.form import replicas
from scheduler.web.submit.form.field_kinds import NotMeant, in_order
from scheduler.web.submit.form.fields import LEAST, MOST, Field, Offer, Part, parts_of

PREFIX = "f:"
ORDER = tuple(dict.fromkeys([*WorkloadSpec.model_fields, *RoleSpec.model_fields]))
BY_TEXT_ONLY = "This value can only be edited in the document."


@dataclass
class Draft:
    """`data` is None while the text is invalid; `agreed` is the last valid text."""

    text: str
    agreed: str
    data: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)  # errors of the text or of fields
    line: int | None = None  # line of the syntax error
    typed: dict[str, str] = field(default_factory=dict)  # invalid field texts by path

    @property
    def readable(self) -> dict[str, Any] | None:
        """The document that the form shows: the last valid version."""
        return self.data if self.data is not None else _read(self.agreed)

    @property
    def has_form(self) -> bool:
        """Manifests of other systems can be edited only as text."""
        readable = self.readable
        return readable is not None and not is_manifest(readable)

    def parts(self, offer: Offer) -> list[Part]:
        return parts_of(self.readable or {}, offer) if self.has_form else []


def opened(text: str) -> Draft:
    draft = Draft(text, text)
    _parse(draft)
    return draft


def sent(post: QueryDict, offer: Offer) -> Draft:
    """Return the draft merged from the submitted form and document."""
    text = _normalize_newlines(post.get("document", ""))
    draft = Draft(text, _normalize_newlines(post.get("agreed", text)))
    _parse(draft)
    before = _read(draft.agreed)
    if before is None or is_manifest(before):
        draft.agreed = draft.text if draft.data is not None else draft.agreed
        return draft
    places = Places.of(draft.agreed)
    for each in _fields(parts_of(before, offer)):
        if (change := _field_change(each, before, places, post)) is not None:
            _apply_change(draft, each, before, change)
    if draft.data is not None:
        draft.agreed = draft.text
    return draft


def step(draft: Draft, wanted: str, *, mail: str = "") -> None:
    """Add or remove a part: `add:roles`, `add:notifications`, `remove:roles[1]`."""
    verb, _, path = wanted.partition(":")
    at = location_of(path)
    if draft.data is None or not at or verb not in ("add", "remove"):
        return
    value: Any = ABSENT
    if verb == "add":
        there = value_at(draft.data, at)
        count = len(there) if isinstance(there, list) else 0
        role = {"name": f"role-{count + 1}", "replicas": 1}
        value = {"to": mail} if path == "notifications" else role
        at = (*at, count)
    try:
        draft.text = draft.agreed = edited(draft.text, at, value, order=ORDER)
    except CannotEdit:
        draft.problems.append(Problem(path, BY_TEXT_ONLY))
    _parse(draft)


def value_of(each: Field, data: Mapping[str, Any], places: Places) -> str | None:
    """Return the text of a field; None if only the document can hold the value."""
    if each.at[-1] in (LEAST, MOST):
        return replicas.shown(each.at, data, places)
    return each.kind.shown(value_at(data, each.at), places.scalars.get(each.at))


def chosen_of(each: Field, data: Mapping[str, Any]) -> list[str]:
    now = value_at(data, each.at)
    return [one for one in now if isinstance(one, str)] if isinstance(now, list) else []


def _field_change(each: Field, before: Mapping[str, Any], places: Places, post: QueryDict) -> Any:
    """Return the text that was typed into a field, or None if it is unchanged."""
    name = PREFIX + each.path
    if name not in post:
        return None
    if each.many:
        chosen = [one for one in post.getlist(name) if one]
        return chosen if set(chosen) != set(chosen_of(each, before)) else None
    typed = _normalize_newlines(post.get(name, "")).rstrip("\n")
    return typed if typed != (value_of(each, before, places) or "") else None


def _apply_change(draft: Draft, each: Field, before: Mapping[str, Any], change: Any) -> None:
    """Write a changed field into the document. Invalid text stays in the field, with an error."""
    if draft.data is None:
        draft.typed[each.path] = change if isinstance(change, str) else ""
        return
    try:
        if each.at[-1] in (LEAST, MOST):
            draft.text = replicas.written(draft.text, draft.data, each.at, change, ORDER)
        else:
            now = value_at(draft.data, each.at)
            meant = in_order(change, now) if each.many else each.kind.meant(change, now)
            draft.text = edited(draft.text, each.at, meant, order=ORDER)
    except NotMeant as fault:
        draft.typed[each.path] = change
        draft.problems.append(Problem(each.path, fault.message, fault.received, fault.allowed))
    except CannotEdit:
        draft.typed[each.path] = change if isinstance(change, str) else ""
        draft.problems.append(Problem(each.path, BY_TEXT_ONLY))
    _parse(draft)


def _parse(draft: Draft) -> None:
    try:
        draft.data = read_document(draft.text)
    except Invalid as error:
        draft.data = None
        draft.problems = [*error.problems]
        draft.line = error.extra.get("line")


def _read(text: str) -> dict[str, Any] | None:
    try:
        return read_document(text)
    except Invalid:
        return None


def _fields(parts: list[Part]) -> Iterator[Field]:
    for part in parts:
        yield from part.fields
        yield from part.more


def owner_of(path: str, names: Mapping[str, Any]) -> str:
    """Return the field of a problem or of its parent, or an empty string if there is none."""
    at = location_of(path)
    for length in range(len(at), 0, -1):
        for inner in _field_paths(at[:length]):
            if inner in names:
                return inner
    return ""


def _field_paths(at: Location) -> Iterator[str]:
    yield path_of(at)
    if at[-1] in ("min", "replicas"):
        yield path_of((*at[:-1], LEAST))
    if at[-1] == "max":
        yield path_of((*at[:-1], MOST))
    if at[-1] == "topology":
        yield path_of((*at, "required"))


def _normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
