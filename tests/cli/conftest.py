"""Here we give CLI tests a terminal, and settings that are nobody's."""

from pathlib import Path

import pytest

from tests.cli.desk_of_commands import Terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("BERTH_CONFIG", str(tmp_path / "config.toml"))
    for name in ("BERTH_URL", "BERTH_TOKEN", "BERTH_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(monkeypatch)
