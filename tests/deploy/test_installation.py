"""Tests for the program that installs the pinned packages."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "requirements/install.py"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Create an environment in which pip finds the package `tiny` in a folder configured in pip.conf."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            "tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {wheels}\n[install]\nno-index = true\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return {
        **own,
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "HOME": str(tmp_path),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }


def installed_by(environment: dict[str, str], target: Path) -> str:
    """Install the package and return the installer that its metadata records."""
    command = [sys.executable, str(PROGRAM), "--target", str(target), "tiny==1.0"]
    subprocess.run(command, env=environment, check=True, timeout=100)
    assert (target / "tiny.py").exists()
    return (target / "tiny-1.0.dist-info/INSTALLER").read_text().strip()


@pytest.mark.heavy
def test_uv_installs_from_the_folder_configured_for_pip(environment: dict[str, str], tmp_path: Path) -> None:
    assert installed_by(environment, tmp_path / "target") == "uv"


@pytest.mark.heavy
def test_pip_environment_variable_overrides_the_pip_configuration_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "pip.conf").write_text(f"[install]\nno-index = true\nfind-links = {tmp_path / 'missing'}\n")
    variable = {"PIP_FIND_LINKS": str(tmp_path / "wheels")}
    assert installed_by({**environment, **variable}, tmp_path / "target") == "uv"


@pytest.mark.heavy
def test_pip_installs_the_package_if_uv_fails(environment: dict[str, str], tmp_path: Path) -> None:
    missing = {"UV_FIND_LINKS": str(tmp_path / "missing"), "UV_NO_INDEX": "1"}
    assert installed_by({**environment, **missing}, tmp_path / "target") == "pip"
