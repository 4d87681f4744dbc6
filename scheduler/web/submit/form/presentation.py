"""Prepare a draft for display, with each error next to its field or line."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from berth.core.problems import SUGGESTION, Problem, join_path
from berth.documents import CannotEdit, SourceLines, rename_key
from berth.documents.values import parse_location, value_at
from berth.server.web.error_sentences import UNKNOWN_KEY, ErrorSentence, describe_problem
from scheduler.web.submit.form import field_kinds
from scheduler.web.submit.form.draft import (
    PREFIX,
    RENAME,
    TEXT_ONLY_HINT,
    Draft,
    field_text,
    find_field,
    selected_values,
)
from scheduler.web.submit.form.field_choices import Choices
from scheduler.web.submit.form.fields import (
    GIT_TITLE,
    MAX_REPLICAS,
    MIN_REPLICAS,
    FormChoices,
    FormField,
    FormPart,
)
from scheduler.web.submit.form.missing_programs import missing_programs
from scheduler.web.submit.form.nearest_value import find_nearest_value, is_invalid_duration
from scheduler.web.submit.form.secret_choices import SecretButton, secret_buttons

KEYS_OF_REPLICAS: Mapping[str | int, tuple[str, ...]] = {
    MIN_REPLICAS: ("replicas", "min"),
    MAX_REPLICAS: ("max",),
}
MISSING_PROGRAM = "{program} is not part of this workload. Choose files or a Git repository under Code."

NO_SOURCE_OF_TASKS = "Enter the number of tasks, or parameters below."
TWO_SOURCES_OF_TASKS = "Clear this field, or the parameters below."


@dataclass
class RenderedField:
    form_field: FormField
    value: str
    chosen: list[str] = field(default_factory=list)
    errors: list[ErrorSentence] = field(default_factory=list)
    warning: str = ""
    stored: str = ""  # the stored value, if the field has been edited
    is_text_only: bool = False
    is_read_only: bool = False
    words: bool = False  # True for a command shown as a list, one word per line
    width: str = ""  # CSS classes that make the fields fill each row of the form

    @property
    def name(self) -> str:
        return PREFIX + self.form_field.path

    @property
    def id(self) -> str:
        return _element_id("f", self.form_field.path)

    @property
    def is_hidden(self) -> bool:
        return (self.is_read_only or self.form_field.is_hidden) and not self.errors

    @property
    def hint(self) -> str:
        if self.is_text_only:
            return TEXT_ONLY_HINT
        if self.is_read_only or self.errors or self.stored:
            return ""
        return "One argument per line" if self.words else self.form_field.hint

    @property
    def anchor(self) -> str:
        """HTML ID for links to this field."""
        return f"w-{self.id}" if self.form_field.many else self.id

    @property
    def described_by(self) -> str:
        texts = {"hint": self.hint, "warning": self.warning, "error": self.errors, "stored": self.stored}
        return " ".join(f"{self.id}-{name}" for name, text in texts.items() if text)

    @property
    def rows(self) -> int:
        return min(max(self.value.count("\n") + 1, 2), 12)

    @property
    def choices(self) -> Choices:
        """Choices of the field, including the document's value even if it is not a regular choice."""
        now = self.form_field.choice_for(self.value)
        choices = [(self.value if key == now else key, label) for key, label in self.form_field.choices]
        values = [value for value, _ in choices]
        here = self.chosen if self.form_field.many else [self.value]
        return (*choices, *((one, one) for one in here if one not in values))

    @property
    def secret_buttons(self) -> list[tuple[str, list[SecretButton]]]:
        """Buttons for the available secrets, grouped by owner."""
        choices, in_lines = self.form_field.secrets or (), self.form_field.kind is field_kinds.SECRETS
        return list(secret_buttons(choices, self.value, in_lines=in_lines))

    @property
    def value_label(self) -> str:
        return dict(self.choices).get(self.value, self.value)

    @property
    def checkboxes(self) -> list[tuple[str, str, bool]]:
        """(value, label, checked) of each checkbox. Checked values come first, unless their order matters."""
        if self.is_ranked:
            return [(value, label, value in self.chosen) for value, label in self.choices]
        ticked = [(one, label) for one in self.chosen for value, label in self.choices if value == one]
        rest = [(value, label) for value, label in self.choices if value not in self.chosen]
        return [
            *((one, label, True) for one, label in ticked),
            *((value, label, False) for value, label in rest),
        ]

    @property
    def is_ranked(self) -> bool:
        """Whether the order of the selected values matters."""
        return self.form_field.at == ("pools",)

    @property
    def ranking(self) -> list[tuple[str, str, str]]:
        """Selected values in order, each with the form actions that move it.

        The list is empty if the order does not matter.
        """
        if not self.is_ranked or len(self.chosen) < 2 or self.is_read_only:
            return []
        last = len(self.chosen) - 1
        at = [join_path((*self.form_field.at, number)) for number in range(last + 1)]
        return [
            (value, f"up:{at[number]}" if number else "", f"down:{at[number]}" if number < last else "")
            for number, value in enumerate(self.chosen)
        ]


@dataclass
class FormSection:
    title: str
    id: str
    fields: list[RenderedField]
    more: list[RenderedField]
    more_title: str = ""
    remove: str = ""
    add: str = ""
    summary: str = ""  # purpose of a section that is collapsed until it has values

    @property
    def is_expanded(self) -> bool:
        """Whether the additional fields are initially expanded, because one of them needs attention."""
        return any(
            field.errors or field.is_text_only or (field.value and field.form_field.unfolds)
            for field in self.more
        )

    @property
    def is_notification(self) -> bool:
        return self.remove.startswith("remove:notifications[")

    @property
    def has_values(self) -> bool:
        """Whether the section is expanded by default, or any of its fields has a value or an error."""
        return self.is_expanded or any(
            field.value or field.errors or field.is_text_only for field in self.fields
        )


@dataclass
class FormError:
    """Error with its line in the document and, if a form field shows it, with the field and its label."""

    line: int | None
    path: str
    sentence: ErrorSentence
    field: RenderedField | None = None
    label: str = ""
    valid_key: str = ""  # key that a button uses instead of the unknown key

    @property
    def rename_action(self) -> str:
        return f"{RENAME}:{self.path}:{self.valid_key}"


@dataclass
class RenderedForm:
    parts: list[FormSection]
    faults: list[FormError] = field(default_factory=list)
    is_behind: bool = False  # True if the form shows an older, valid version of the document

    @property
    def shape(self) -> str:
        """Digest of the form's structure. While it is unchanged, fields are updated in place."""
        return " ".join([*(part.title for part in self.parts), "behind" * self.is_behind])

    @property
    def labelled_fields(self) -> dict[str, tuple[str, RenderedField]]:
        """Fields with their labels, keyed by document path.

        If a section can occur more than once, such as a role, its labels begin with the section's title.
        """
        labelled = {}
        for part in self.parts:
            for shown in (*part.fields, *part.more):
                label = f"{part.title}, {shown.form_field.label}" if part.remove else shown.form_field.label
                *place, key = shown.form_field.at
                for name in KEYS_OF_REPLICAS.get(key, (str(key),)):
                    labelled[join_path((*place, name))] = label, shown
        return labelled

    @property
    def kind_label(self) -> str:
        """The workload's kind in words, or "Workload" if the document has no form."""
        field_of_kind = self.labelled_fields.get("kind")
        return "Workload" if field_of_kind is None else field_of_kind[1].value_label

    @property
    def git(self) -> FormSection | None:
        """Section for a Git repository, or None. The submission page shows the section in the code card."""
        return next((part for part in self.parts if part.title == GIT_TITLE), None)

    @property
    def notifications(self) -> list[FormSection]:
        return [part for part in self.parts if part.is_notification]

    @property
    def error_line_numbers(self) -> str:
        return " ".join(str(error.line) for error in self.faults if error.line)


def prepare_form(
    draft: Draft,
    offer: FormChoices,
    problems: Iterable[Problem] = (),
    *,
    read_only: Container[str] = (),
    stored: Mapping[str, Any] | None = None,
) -> RenderedForm:
    """Prepare the form for rendering.

    `read_only` contains the paths of fields that cannot be changed. Commands that the `stored` document
    already contains are not checked again.
    """
    faults = list(dict.fromkeys([*draft.problems, *problems]))
    places = SourceLines.from_text(draft.text if draft.data is not None else draft.agreed)
    data = draft.form_data or {}
    parts = [_render_part(part, draft, data, places) for part in draft.parts(offer)]
    fields = {field.form_field.path: field for part in parts for field in (*part.fields, *part.more)}
    for path, shown in fields.items():
        shown.is_read_only = path in read_only
    warned = missing_programs(stored or {}).items()
    for path, program in missing_programs(data).items():
        # Users of a template may still add code.
        if path in fields and not offer.for_template and (path, program) not in warned:
            fields[path].warning = MISSING_PROGRAM.format(program=program)
    form, errors = RenderedForm(parts, is_behind=draft.data is None), []
    labels = {shown.form_field.path: label for label, shown in form.labelled_fields.values()}
    for problem in faults:
        owner = fields.get(find_field(problem.path, fields))
        sentence = _field_sentence(problem, owner) if owner else describe_problem(problem)
        label = labels[owner.form_field.path] if owner else ""
        line, key = _line_number(draft, places, problem), _find_valid_key(draft, problem)
        errors.append(FormError(line, problem.path, sentence, owner, label, key))
        if owner:
            owner.errors.append(sentence)
    form.faults = sorted(errors, key=lambda fault: fault.line or 0)
    return form


def _find_valid_key(draft: Draft, problem: Problem) -> str:
    """Return the suggested replacement for an unknown key.

    Return "" if there is no suggestion, or if a button cannot rename the key.
    """
    if problem.message != UNKNOWN_KEY or not problem.allowed.startswith(SUGGESTION) or not draft.has_form:
        return ""
    key = problem.allowed.split("`")[1]
    try:
        rename_key(draft.text, parse_location(problem.path), key)
    except CannotEdit:
        return ""
    return key


def _field_sentence(problem: Problem, shown: RenderedField) -> ErrorSentence:
    form_field = shown.form_field
    if problem.path == "array" and problem.allowed.startswith("one of "):
        return ErrorSentence(TWO_SOURCES_OF_TASKS if problem.received else NO_SOURCE_OF_TASKS)
    is_choice = form_field.many or form_field.kind in (field_kinds.CHOICE, field_kinds.NUMBER_CHOICE)
    sentence = describe_problem(problem, form_field.label, choice=is_choice)
    if sentence.replacement or form_field.many:
        return sentence
    nearest = find_nearest_value(form_field, shown.value)
    if is_invalid_duration(form_field, shown.value):
        advice = "Enter a number with a unit, for example 30m, 8h or 7d."
        sentence = ErrorSentence(f"Not a duration. {advice}")
    return sentence.with_suggestion(nearest) if nearest else sentence


def _render_part(part: FormPart, draft: Draft, data: Mapping[str, Any], places: SourceLines) -> FormSection:
    return FormSection(
        title=part.title,
        id=_element_id("p", join_path(part.at) if part.at else part.title.lower()),
        fields=_fill_rows(_render_fields(part.fields, draft, data, places)),
        more=_fill_rows(_render_fields(part.more, draft, data, places)),
        more_title=part.more_title,
        remove="" if part.at is None else f"remove:{join_path(part.at)}",
        add=part.add and f"add:{part.add}",
        summary=part.summary,
    )


def _render_fields(
    fields: Iterable[FormField], draft: Draft, data: Mapping[str, Any], places: SourceLines
) -> Iterator[RenderedField]:
    for form_field in fields:
        value = field_text(form_field, data, places)
        yield RenderedField(
            form_field,
            draft.typed.get(form_field.path, value or ""),
            chosen=selected_values(form_field, data) if form_field.many else [],
            is_text_only=value is None and form_field.path not in draft.typed,
            words=form_field.at[-1] == "command" and isinstance(value_at(data, form_field.at), list),
        )


def _fill_rows(fields: Iterable[RenderedField]) -> list[RenderedField]:
    """Set the widths of the fields so that they fill each row."""
    shown = list(fields)
    for is_wide, group in groupby(shown, lambda each: each.form_field.wide):
        run = [each for each in group if not each.form_field.is_hidden]
        if is_wide or not run:
            continue
        if len(run) == 1:
            run[0].width = "wide"
            continue
        for each in run[len(run) - 2 * (-len(run) % 3) :]:
            each.width = "half"
        if len(run) % 2:
            run[-3].width = f"{run[-3].width} own-row".strip()
    return shown


def _element_id(kind: str, path: str) -> str:
    return f"{kind}-" + re.sub(r"[^a-z0-9_]+", "-", path).strip("-")


def _line_number(draft: Draft, places: SourceLines, problem: Problem) -> int | None:
    if not problem.path:
        return draft.line
    return places.line_number(problem.path)
