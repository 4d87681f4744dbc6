"""Tests for the notices of `berth up` about pod isolation."""

from dataclasses import replace
from pathlib import Path

import pytest

from berth.server.up import isolation
from berth.server.up.errors import StartupError
from berth.server.up.isolation import choose_local_settings
from pools.providers.hardware import Machine, simulated_devices
from pools.runtimes.shim.limits import cgroups


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
    variables, notice = choose_local_settings(tmp_path, demo=True)
    assert "Warning: the demo runs its pods without isolation. bubblewrap is not installed." in notice
    assert "the demo ignores resource limits in documents" in notice
    assert (variables["BERTH_ISOLATION"], variables["BERTH_LIMITS"]) == ("off", "off")


@pytest.mark.usefixtures("bare_machine")
def test_isolation_variable_also_applies_to_a_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "require")
    variables, notice = choose_local_settings(tmp_path, demo=True)
    assert "Warning: this machine runs no pods. bubblewrap is not" in notice
    assert "BERTH_ISOLATION" not in variables


@pytest.mark.usefixtures("bare_machine")
def test_installation_without_isolation_warns_that_it_serves_only_one_project(tmp_path: Path) -> None:
    variables, notice = choose_local_settings(tmp_path, demo=False)
    assert "Warning: this machine serves only one project. bubblewrap is not installed." in notice
    assert not variables, "isolation is never switched off silently"


def test_disabled_isolation_is_announced_at_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    assert (
        "pods are not isolated, because BERTH_ISOLATION is off"
        in choose_local_settings(tmp_path, demo=False).notice
    )


def test_invalid_isolation_policy_prevents_startup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "yes")
    with pytest.raises(StartupError, match="Use require, auto or off"):
        choose_local_settings(tmp_path, demo=True)


@pytest.mark.usefixtures("bare_machine")
def test_demo_simulates_gpus_only_if_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1000, 1024, ())
    monkeypatch.setattr(isolation, "detect_local_machine", lambda: machine)
    assert choose_local_settings(tmp_path, demo=True).variables["BERTH_DECLARED_GPUS"] == "8"
    assert "BERTH_DECLARED_GPUS" not in choose_local_settings(tmp_path, demo=False).variables
    machine = replace(machine, devices=simulated_devices(2))
    assert "BERTH_DECLARED_GPUS" not in choose_local_settings(tmp_path, demo=True).variables
