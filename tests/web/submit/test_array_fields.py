"""Tests of the form's fields for the tasks and parameters of an array."""

import pytest

from scheduler.web.submit.form.draft import Draft, apply_form_action, open_draft
from scheduler.web.submit.form.presentation import FormSection, RenderedField, prepare_form
from tests.web.submit.test_submit_form import FORM_CHOICES, post

HEAD = "name: sweep\nproject: vision\ncommand: python a.py\n"


def fields_of(text: str) -> dict[str, RenderedField]:
    return {field.form_field.path: field for field in array_part(open_draft(HEAD + text)).fields}


def array_part(draft: Draft) -> FormSection:
    return next(part for part in prepare_form(draft, FORM_CHOICES).parts if part.title == "Array")


@pytest.mark.parametrize(
    ("text", "path", "shown", "size"),
    [
        (
            "matrix: {LR: [0.1, 1e-2], ADAM: [true, false]}",
            "array.matrix",
            "LR=0.1, 1e-2\nADAM=true, false",
            4,
        ),
        ("matrix: {DEPTH: 4}", "array.matrix", "DEPTH=4", 1),
        ("values: [{LR: 0.1, D: a b}, {LR: 0.2}]", "array.values", "LR=0.1 D='a b'\nLR=0.2", 2),
        ("values: [0.1, train on a]", "array.values", "0.1\ntrain on a", 2),
    ],
)
def test_form_shows_the_parameters_of_the_document(text: str, path: str, shown: str, size: int) -> None:
    fields = fields_of(f"array: {{{text}}}\n")
    assert fields[path].value == shown
    assert fields["array.tasks"].form_field.default == f"All {size}"
    others = {"array.matrix", "array.values"} - {path}
    assert [each for each in fields if fields[each].is_hidden] == [*others]


@pytest.mark.parametrize("text", ["array: {matrix: {A: ['x,y']}}\n", "array: {values: ['A=1', 2]}\n"])
def test_parameters_that_a_line_cannot_contain_are_edited_in_the_document(text: str) -> None:
    assert [field.is_text_only for field in fields_of(text).values()].count(True) == 1


def test_edit_of_one_variable_keeps_the_others_and_their_comments() -> None:
    text = HEAD + "array:\n  matrix:\n    LR: [0.1, 0.01]  # rates\n    DEPTH: [2, 4]  # layers\n"
    draft = post(open_draft(text), **{"array.matrix": "LR=0.1, 0.02\nDEPTH=2, 4"})
    assert draft.text == text.replace("0.01]", "0.02]")
    draft = post(draft, **{"array.matrix": "DEPTH=2, 4\nLR=0.1, 0.02"})
    assert draft.text == HEAD + "array:\n  matrix:\n    DEPTH: [2, 4]\n    LR: [0.1, 0.02]\n"
    assert post(draft, **{"array.matrix": ""}).text == HEAD


def test_form_edits_the_stop_rule_of_an_array() -> None:
    text = HEAD + "array:\n  tasks: 4\n"
    draft = post(open_draft(text), **{"array.stop.metric": "loss", "array.stop.after_steps": "10"})
    assert draft.data is not None
    assert draft.data["array"] == {"tasks": 4, "stop": {"metric": "loss", "after_steps": 10}}
    draft = post(draft, **{"array.stop.goal": "max"})
    assert "goal: max" in draft.text
    emptied = {f"array.stop.{key}": "" for key in ("metric", "after_steps", "goal")}
    assert post(draft, **emptied).text == text


def test_invalid_line_stays_in_its_field() -> None:
    draft = post(open_draft(HEAD), **{"array.matrix": "LR 0.1"})
    assert (draft.text, draft.typed["array.matrix"]) == (HEAD, "LR 0.1")
    [fault] = prepare_form(draft, FORM_CHOICES).faults
    assert (fault.label, fault.sentence.text) == (
        "Array, Parameter matrix", "Enter a variable with its values, such as LR=0.1, 0.01.",
    )  # fmt: skip


def test_array_is_removed_with_its_button() -> None:
    draft = open_draft(HEAD + "array:\n  matrix: {LR: [1, 2]}\n  max_running: 1\n")
    apply_form_action(draft, array_part(draft).remove)
    assert draft.text == HEAD
