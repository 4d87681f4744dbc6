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
