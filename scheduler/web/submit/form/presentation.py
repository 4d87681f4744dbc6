"""Prepare a draft for display, with errors beside fields and lines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.core.problems import Problem, path_of
from berth.documents import Places
from berth.documents.values import value_at
from scheduler.web.submit.form.draft import BY_TEXT_ONLY, PREFIX, Draft, chosen_of, owner_of, value_of
from scheduler.web.submit.form.fields import Choices, Field, Offer, Part


@dataclass
class ShownField:
    of: Field
    value: str
    chosen: list[str] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    only_text: bool = False
    words: bool = False  # True for a command shown as a list, one word per line

    @property
    def name(self) -> str:
        return PREFIX + self.of.path

    @property
    def id(self) -> str:
        return _element_id("f", self.of.path)

    @property
    def hint(self) -> str:
        if self.only_text:
            return BY_TEXT_ONLY
        return "One argument per line" if self.words else self.of.hint

    @property
    def described(self) -> str:
        parts = [f"{self.id}-hint"] * bool(self.hint) + [f"{self.id}-error"] * bool(self.errors)
        return " ".join(parts)

    @property
    def rows(self) -> int:
        return min(max(self.value.count("\n") + 1, 2), 12)

    @property
    def choices(self) -> Choices:
        """Choices, plus the document's value if it is not among them."""
        values = [value for value, _ in self.of.choices]
        here = self.chosen if self.of.many else [self.value]
        return (*self.of.choices, *((one, one) for one in here if one not in values))

    @property
    def boxes(self) -> list[tuple[str, str, bool, str]]:
        """Tuples of (value, label, is checked, position). Checked values come first, in order."""
        ticked = [(one, label) for one in self.chosen for value, label in self.choices if value == one]
        rest = [(value, label) for value, label in self.choices if value not in self.chosen]
        several = self.of.at == ("pools",) and len(ticked) > 1
        first = [(one, label, True, f"{place}." if several else "")
                 for place, (one, label) in enumerate(ticked, 1)]  # fmt: skip
        return [*first, *((value, label, False, "") for value, label in rest)]


@dataclass
class ShownPart:
    title: str
    id: str
    fields: list[ShownField]
    more: list[ShownField]
    remove: str = ""
    add: str = ""

    @property
    def unfolded(self) -> bool:
        """True if the section is open because one of its fields has a value."""
        return any(each.value or each.errors or each.only_text for each in self.more)


@dataclass
class Fault:
    line: int | None
    problem: Problem


@dataclass
class Shown:
    parts: list[ShownPart]
    faults: list[Fault]
    elsewhere: list[Problem]  # problems without a field
    is_behind: bool = False  # the form shows the last valid version

    @property
    def shape(self) -> str:
        """Digest of the form's structure. Fields are updated in place while the digest is unchanged."""
        return " ".join([*(part.title for part in self.parts), "behind" * self.is_behind])

    @property
    def fault_lines(self) -> str:
        return " ".join(str(each.line) for each in self.faults if each.line)


def shown(draft: Draft, offer: Offer, problems: Iterable[Problem] = ()) -> Shown:
    faults = list(dict.fromkeys([*draft.problems, *problems]))
    places = Places.of(draft.text if draft.data is not None else draft.agreed)
    data = draft.readable or {}
    parts = [_shown_part(part, draft, data, places) for part in draft.parts(offer)]
    fields = {each.of.path: each for part in parts for each in (*part.fields, *part.more)}
    elsewhere = []
    for problem in faults:
        if owner := owner_of(problem.path, fields):
            fields[owner].errors.append(problem)
        else:
            elsewhere.append(problem)
    lines = [Fault(_line_number(draft, places, each), each) for each in faults]
    return Shown(parts, sorted(lines, key=lambda fault: fault.line or 0), elsewhere, draft.data is None)


def _shown_part(part: Part, draft: Draft, data: Mapping[str, Any], places: Places) -> ShownPart:
    return ShownPart(
        title=part.title,
        id=_element_id("p", path_of(part.at) if part.at else part.title.lower()),
        fields=list(_shown_fields(part.fields, draft, data, places)),
        more=list(_shown_fields(part.more, draft, data, places)),
        remove="" if part.at is None else f"remove:{path_of(part.at)}",
        add=part.add and f"add:{part.add}",
    )


def _shown_fields(
    fields: Iterable[Field], draft: Draft, data: Mapping[str, Any], places: Places
) -> Iterator[ShownField]:
    for each in fields:
        value = value_of(each, data, places)
        yield ShownField(
            each,
            draft.typed.get(each.path, value or ""),
            chosen=chosen_of(each, data) if each.many else [],
            only_text=value is None and each.path not in draft.typed,
            words=each.at[-1] == "command" and isinstance(value_at(data, each.at), list),
        )


def _element_id(kind: str, path: str) -> str:
    return f"{kind}-" + re.sub(r"[^a-z0-9_]+", "-", path).strip("-")


def _line_number(draft: Draft, places: Places, problem: Problem) -> int | None:
    if not problem.path:
        return draft.line
    return places.line_number(problem.path)
