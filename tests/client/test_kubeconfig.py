"""Tests for the selection of a context from a kubeconfig."""

from pathlib import Path

import pytest
import yaml

from berth.client.kubeconfig import read_kubeconfig


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("prd", "has no entry 'prd' in contexts. Did you mean `prod`?"),
        ("west", "has no entry 'west' in contexts. Available entries: prod, staging."),
    ],
)
def test_error_for_an_unknown_context_suggests_existing_contexts(
    tmp_path: Path, wanted: str, hint: str
) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump({"contexts": [{"name": "prod"}, {"name": "staging"}]}))
    with pytest.raises(ValueError, match="contexts") as raised:
        read_kubeconfig(str(file), wanted)
    assert str(raised.value) == f"{file} {hint}"
