"""Tests for the findings of `berth doctor` on this machine and on machines that lack something."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from berth.server.doctor import server
from pools.runtimes.enclosure import seccomp
from pools.runtimes.local import LocalRuntime
from pools.runtimes.shim.limits import cgroups

VARIABLES = ("BERTH_ISOLATION", "BERTH_LIMITS", "BERTH_SECCOMP", "DATABASE_URL")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "berth"
    monkeypatch.setenv("BERTH_HOME", str(path))
    return path


def run_doctor() -> tuple[int, dict[str, Any]]:
    """Run `berth doctor`. Return its exit code, and its checks by name."""
    result = CliRunner().invoke(app, ["doctor", "--json"])
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)}


def state(check: dict[str, Any]) -> tuple[str, str, str]:
    return check["status"], check["finding"], check["remedy"]


def test_doctor_detects_isolation_by_running_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_IMAGES", "off")
    isolation = LocalRuntime(tmp_path / "run", anchor="").isolation
    code, checks = run_doctor()
    assert code == 0
    assert list(checks) == [
        "Python", "Directory", "Disk", "Database", "Port", "Isolation", "Limits", "System calls", "Images",
        "GPUs",
    ]  # fmt: skip
    assert checks["Isolation"]["finding"].startswith(f"Level {isolation.level}.")
    assert (checks["Isolation"]["status"] == "ok") == (isolation.level == "users")
    assert (checks["System calls"]["status"] == "ok") == isolation.seccomp
    assert state(checks["Images"])[::2] == ("limited", "")
    assert checks["Images"]["finding"].startswith("BERTH_IMAGES is off.")
    assert not list(Path("/tmp").glob("berth-doctor-*")), "nothing is left behind"


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(cgroups, "_ROOT", "/proc/no-such-directory")
    monkeypatch.setattr(seccomp, "INSTALLED_ACTIONS", tmp_path / "none")


@pytest.mark.usefixtures("bare_machine")
def test_doctor_suggests_a_remedy_for_each_limitation() -> None:
    code, checks = run_doctor()
    assert code == 0, "Berth runs, with limitations"
    status, finding, remedy = state(checks["Isolation"])
    assert (status, finding) == (
        "limited", "Level none. bubblewrap is not installed. Only the pods of one project can run at a time.",
    )  # fmt: skip
    assert "apt-get install bubblewrap" in remedy
    assert checks["Limits"]["finding"].startswith("Not enforced: memory, cpu, processes.")
    assert "Delegate=yes" in checks["Limits"]["remedy"]
    assert checks["System calls"]["status"] == "limited"


@pytest.mark.usefixtures("bare_machine")
def test_exit_code_is_nonzero_if_required_isolation_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_ISOLATION", "require")
    code, checks = run_doctor()
    assert (code, checks["Isolation"]["status"]) == (1, "missing")
    monkeypatch.setenv("BERTH_ISOLATION", "yes")
    code, checks = run_doctor()
    assert (code, checks["Isolation"]["status"]) == (1, "missing")
    assert "Use require, auto or off" in checks["Isolation"]["finding"]


def test_remedy_for_a_world_readable_directory_is_a_command(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    check = server._check_directory(home)
    assert (check.status, check.remedy) == ("limited", f"chmod 700 {home}")
    home.chmod(0o700)
    assert server._check_directory(home).status == "ok"


@pytest.mark.parametrize(("free", "status"), [(0.5, "missing"), (5, "limited"), (50, "ok")])
def test_doctor_compares_disk_space_with_the_required_space(
    home: Path, monkeypatch: pytest.MonkeyPatch, free: float, status: str
) -> None:
    usage = SimpleNamespace(free=int(free * 1024**3))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert server._check_disk(home).status == status


def test_doctor_reports_an_unreachable_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://berth@/berth?host={tmp_path}")
    check = server._check_database()
    assert (check.status, check.remedy) == ("missing", "Correct DATABASE_URL.")
    assert "No such file or directory" in check.finding


def test_database_with_an_unprivileged_role_passes_the_check(
    monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres)
    check = server._check_database()
    is_superuser = "superuser" in check.finding
    assert check.status == ("limited" if is_superuser else "ok")
    assert check.finding.startswith("PostgreSQL ")


def test_text_output_has_one_line_per_check_followed_by_remedies(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    home.chmod(0o755)
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    lines = CliRunner().invoke(app, ["doctor"]).stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("limited  Directory "))
    assert lines[at + 1].strip() == f"chmod 700 {home}"
    assert any(
        line.startswith("limited  Isolation      Level none. BERTH_ISOLATION is off.") for line in lines
    )


def test_reported_gpus_match_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    probe = tmp_path / "nvidia-smi"
    probe.write_text("#!/bin/sh\necho '0, GPU-a, 5, 100'\necho '1, GPU-b, 5, 100'\n")
    probe.chmod(0o755)
    monkeypatch.setenv("BERTH_GPU_PROBE", str(probe))
    monkeypatch.setenv("BERTH_ISOLATION", "off")
    assert run_doctor()[1]["GPUs"]["finding"] == "2 seen."
    monkeypatch.setenv("BERTH_DECLARED_GPUS", "4")
    assert run_doctor()[1]["GPUs"]["finding"] == "4 simulated, because `BERTH_DECLARED_GPUS` is set."
