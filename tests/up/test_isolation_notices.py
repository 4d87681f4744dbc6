"""Tests for the notices of `berth up` about pod isolation."""

import os
from pathlib import Path

import pytest

from berth.server.up.errors import StartupError
from berth.server.up.isolation import choose_isolation
from pools.runtimes.shim import cgroups


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BERTH_ISOLATION", "BERTH_LIMITS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(cgroups, "_ROOT", "/proc/no-such-directory")


@pytest.mark.usefixtures("bare_machine")
def test_demo_without_isolation_support_disables_isolation_with_a_notice(tmp_path: Path) -> None:
    notice = choose_isolation(tmp_path, demo=True)
    assert "Warning: the demo runs its pods without isolation. bubblewrap is not installed." in notice
    assert "the demo ignores resource limits in documents" in notice
    assert (os.environ["BERTH_ISOLATION"], os.environ["BERTH_LIMITS"]) == ("off", "off")


@pytest.mark.usefixtures("bare_machine")
def test_isolation_variable_also_applies_to_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "require")
    assert "Warning: this machine runs no pods. bubblewrap is not" in choose_isolation(tmp_path, demo=True)
    assert os.environ["BERTH_ISOLATION"] == "require"


@pytest.mark.usefixtures("bare_machine")
def test_installation_without_isolation_serves_only_one_project(tmp_path: Path) -> None:
    notice = choose_isolation(tmp_path, demo=False)
    assert "Warning: this machine serves only one project. bubblewrap is not installed." in notice
    assert not {"BERTH_ISOLATION", "BERTH_LIMITS"} & os.environ.keys(), (
        "isolation is never switched off silently"
    )


def test_disabled_isolation_is_announced_at_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    assert "pods are not isolated, because BERTH_ISOLATION is off" in choose_isolation(tmp_path, demo=False)


def test_invalid_isolation_policy_prevents_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "yes")
    with pytest.raises(StartupError, match="Use require, auto or off"):
        choose_isolation(tmp_path, demo=True)
