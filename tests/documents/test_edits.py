"""Tests for edits to YAML text that preserve comments and layout."""

import contextlib
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.errors import Invalid
from berth.documents import (
    CannotEdit,
    SourceLines,
    edit_text,
    parse_setting,
    read_document,
    remove_value,
    set_value,
)
from berth.documents.reading import SafeLoader

TEXT = """\
# trained every night
name: night-run   # short
project: vision
roles:
  - name: worker   # the ranks
    gpu: 1
    # measured, not guessed
    cpu: 2

  - {name: ps, gpu: 0}   # parameters
command: |
  prepare
  train

env:
  EPOCHS: "3"   # text
labels: {team: nlp}
# the end
"""


@pytest.mark.parametrize(
    ("at", "value", "was", "now"),
    [
        (("name",), "other", "name: night-run   # short", "name: other   # short"),
        (("roles", 0, "gpu"), 0.5, "    gpu: 1\n", "    gpu: 0.5\n"),
        (("roles", 1, "gpu"), 2, "{name: ps, gpu: 0}   # p", "{name: ps, gpu: 2}   # p"),
        (("roles", 1, "cpu"), "800m", "gpu: 0}   # p", "gpu: 0, cpu: 800m}   # p"),
        (("roles", 0, "memory_mib"), "4Gi", "    cpu: 2\n", "    cpu: 2\n    memory_mib: 4Gi\n"),
        (("env", "EPOCHS"), "4", '"3"   # text', "'4'   # text"),
        (("env", "SEED"), "1", '"3"   # text\n', "\"3\"   # text\n  SEED: '1'\n"),
        (("image",), "torch", "project: vision\n", "project: vision\nimage: torch\n"),
        (("pools",), ["a", "b"], "project: vision\n", "project: vision\npools: [a, b]\n"),
        (("command",), "train", "command: |\n  prepare\n  train\n", "command: train\n"),
        (("command",), "a\nb", "command: |\n  prepare\n  train\n", "command: |-\n  a\n  b\n"),
        (("name",), "a\nb", "name: night-run   # short", "name: |-  # short\n  a\n  b"),
        (
            ("topology", "required"),
            "rack",
            "project: vision\n",
            "project: vision\ntopology:\n  required: rack\n",
        ),
    ],
)
def test_document_edit_changes_a_value_in_place(at: Any, value: object, was: str, now: str) -> None:
    order = ("name", "project", "pools", "image", "topology", "roles")
    assert TEXT.count(was) == 1
    assert edit_text(TEXT, at, value, order=order) == TEXT.replace(was, now)


@pytest.mark.parametrize(
    ("at", "was", "now"),
    [
        (("project",), "project: vision\n", ""),
        (("roles", 0, "cpu"), "    cpu: 2\n", ""),
        (("roles", 1, "gpu"), "{name: ps, gpu: 0}", "{name: ps}"),
        (("roles", 1), "  - {name: ps, gpu: 0}   # parameters\n", ""),
        (("roles", 0, "name"), "  - name: worker   # the ranks\n", "  -    # the ranks\n"),
        (("env", "EPOCHS"), 'env:\n  EPOCHS: "3"   # text\n', ""),
        (("labels",), "labels: {team: nlp}\n", ""),
        (("absent", "part"), "", ""),
    ],
)
def test_removing_a_key_leaves_other_lines_unchanged(at: Any, was: str, now: str) -> None:
    assert edit_text(TEXT, at) == TEXT.replace(was, now)


def test_list_edit_keeps_comments_of_remaining_items() -> None:
    text = "pools:\n  - a   # near\n  - b\n  - c   # far\n"
    assert edit_text(text, ("pools",), ["a", "c", "d"]) == "pools:\n  - a   # near\n  - c   # far\n  - d\n"
    assert edit_text(text, ("pools",), ["c", "a"]) == "pools: [c, a]   # far\n"
    assert edit_text("pools: [a, b]\n", ("pools",), ["b"]) == "pools: [b]\n"


def test_document_edit_adds_a_new_role_last() -> None:
    text = "name: x\nroles:\n- name: a\n  gpu: 1   # one\nlabels: {}\n"
    assert edit_text(text, ("roles", 1), {"name": "b", "gpu": 0}) == text.replace(
        "# one\n", "# one\n- name: b\n  gpu: 0\n"
    )


def test_edited_json_document_stays_json() -> None:
    import json

    text = '{"name": "x", "roles": [{"gpu": 1}]}'
    changed = edit_text(edit_text(text, ("roles", 0, "cpu"), "1"), ("name",), "y: z")
    assert json.loads(changed) == {"name": "y: z", "roles": [{"gpu": 1, "cpu": "1"}]}


def test_unsafe_edit_is_rejected() -> None:
    for text, at in (("- a\n- b\n", ("name",)), ("name: [", ("name",)), ("a: 1", ("a", "b"))):
        with pytest.raises(CannotEdit):
            edit_text(text, at, "x")


keys = st.sampled_from(["name", "env", "roles", "odd key", "#", "1", "yes"])
scalar_values = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 1.25]),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=8),
    st.sampled_from(["a\nb", "a\n", " a", "a: b", "# c", "- d", "0.", "null", "{"]),
    st.sampled_from(["a\n\n b\n", "\u2028", "\t"]),
)  # fmt: skip
values = st.recursive(
    scalar_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
documents = st.dictionaries(keys, values, min_size=1, max_size=4)
places = st.lists(keys | st.integers(0, 2), min_size=1, max_size=3).map(tuple)


@settings(max_examples=100, deadline=None)
@given(documents, places, values, st.booleans(), st.sampled_from([None, True, False]))
def test_document_edit_changes_only_the_specified_value_or_is_rejected(
    document: dict[str, Any], at: Any, value: object, take: bool, flow: bool | None
) -> None:
    text = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True)
    text = "".join(f"{line}   # c{number}\n" if line.endswith(": 1") else f"{line}\n"
                   for number, line in enumerate(text.split("\n")))  # fmt: skip
    if yaml.load(text, SafeLoader) != document:
        return  # the comment landed inside a string
    try:
        changed = edit_text(text, at) if take else edit_text(text, at, value)
    except CannotEdit:
        return
    expected = remove_value(document, at) if take else set_value(document, at, value)
    assert yaml.load(changed, SafeLoader) == (expected or None)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), places, scalar_values)
def test_arbitrary_text_does_not_crash_the_editor(text: str, at: Any, value: object) -> None:
    with contextlib.suppress(CannotEdit):
        edit_text(text, at, value)
    SourceLines.from_text(text).line_number("roles[0].gpu")


def test_document_error_refers_to_the_line_of_the_key_or_its_parent() -> None:
    places = SourceLines.from_text(TEXT)
    paths = ("name", "roles[0].cpu", "roles[1].gpu", "roles[1].min")
    assert [places.line_number(path) for path in paths] == [2, 8, 10, 10]
    assert (places.line_number("image"), places.line_number("env.EPOCHS")) == (None, 16)
    assert SourceLines.from_text("name: [").line_number("name") is None
    assert places.scalars[("env", "EPOCHS")] == "3"


def test_set_option_is_parsed_as_path_and_value() -> None:
    assert parse_setting("roles[0].gpu=2") == (("roles", 0, "gpu"), 2)
    assert parse_setting("env.A=b=c") == (("env", "A"), "b=c")
    assert parse_setting("env.EPOCHS=5") == (("env", "EPOCHS"), "5")
    assert parse_setting("pools=[a, b]") == (("pools",), ["a", "b"])
    for wrong in ("gpu", "=1", "[0]=1", "a..b=1", ".a=1", "a[x]=1", "a=[", "a=!!python/none 1"):
        with pytest.raises(Invalid):
            parse_setting(wrong)


def test_key_named_on_is_not_parsed_as_true() -> None:
    text = "notifications:\n  - to: me@example.org\n"
    changed = edit_text(text, ("notifications", 0, "on"), ["failed"])
    assert changed == text + "    on: [failed]\n"
    assert read_document(changed) == {"notifications": [{"to": "me@example.org", "on": ["failed"]}]}
