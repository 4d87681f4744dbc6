"""Tests for the messages of YAML errors."""

import pytest

from berth.core.errors import Invalid
from berth.documents.strict import read_document


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("name: a\ncommand: echo x: y\n", "put quotes around values that contain a colon and a space"),
        ("name: a\nenv:\n\tA: 1\n", "indent with spaces instead of tabs"),
        ("name: @a\n", "put quotes around values with @"),
    ],
)
def test_common_yaml_errors_state_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_document(text)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("name: a\nlabels: [\nenv: {A: 1}\n", "a [ is not closed, or a comma is missing", 2),
        ("name: a\nlabels: [\n", "a [ is not closed, or a value is missing", 2),
        ("name: a\nenv: {A: 1\npriority: 50\n", "a { is not closed, or a comma is missing", 2),
        ("name: a\nenv: {\n", "a { is not closed, or a value is missing", 2),
        ("name: 'a\npriority: 50\n", "a quote is not closed", 1),
        ("name: a\nlabels\npriority: 50\n", "a key has no colon", 2),
        ("roles:\n  - name: a\n gpu: 1\n", "the indentation differs from the lines above", 3),
        ("name: ]\n", "a ] or } has no opening bracket", 1),
    ],
)
def test_yaml_errors_name_the_invalid_line_in_plain_words(text: str, words: str, line: int) -> None:
    with pytest.raises(Invalid) as caught:
        read_document(text)
    assert words in str(caught.value)
    assert caught.value.extra["line"] == line
