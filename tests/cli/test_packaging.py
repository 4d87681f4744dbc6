"""Tests for the dependencies of the base install, and for errors that name a missing extra."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from berth.cli.exits import explain_error
from tests.cli.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if any((name + ".").startswith(package + ".") for package in {packages!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
COMMAND = """
from berth.cli.main import app
app({arguments!r})
"""
SERVER = (
    "berth.server", "django", "rest_framework", "numpy", "psycopg", "structlog", "cryptography", "uvicorn",
    "prometheus_client",
)  # fmt: skip


def run_without(packages: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    return python_without(packages, COMMAND.format(arguments=list(arguments)))


def python_without(packages: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    code = BLOCKED.format(packages=packages) + code
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False, cwd=ROOT
    )


def test_missing_server_package_error_suggests_the_server_extra() -> None:
    explanation = explain_error(ModuleNotFoundError(name="berth.server"))
    assert explanation is not None
    assert (
        "needs berth-platform-server, which is not installed. Run `pip install 'berth-platform[server]'`"
        in explanation[1][0]
    )


def test_base_install_has_only_the_dependencies_of_cli_and_client() -> None:
    assert PROJECT["name"] == "berth-platform"
    assert {re.split("[>;]", requirement)[0] for requirement in PROJECT["dependencies"]} == {
        "cloudpickle", "httpx", "pathspec", "pydantic", "pyyaml", "rich", "tomli", "typer",
        "typing-extensions", "websockets",
    }  # fmt: skip
    extras = set(PROJECT["optional-dependencies"])
    optional = {"top", "aws", "otel", "ray", "redis", "docs", "joblib", "ssh", "dev"}
    assert extras == {"server", "embedded", *optional}


@pytest.mark.parametrize("arguments", [("up",), ("admin", "backup", "berth.backup")], ids=" ".join)
def test_server_command_names_the_missing_extra(
    arguments: tuple[str, ...],
) -> None:
    done = run_without(SERVER, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "pip install 'berth-platform[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_error_names_the_extra_only_for_missing_third_party_packages() -> None:
    for name, extra in (("textual.app", "top"), ("asyncssh", "ssh"), ("numpy", "server")):
        explanation = explain_error(ModuleNotFoundError(name=name))
        assert explanation is not None
        assert f"berth-platform[{extra}]" in explanation[1][0]
    assert explain_error(ModuleNotFoundError(name="berth.cli.nothing")) is None


def test_parallel_call_without_joblib_names_the_missing_extra() -> None:
    done = python_without(("joblib",), "from berth.client import AsyncClient, Client")
    assert done.returncode == 0, done.stderr
    call = "from berth.client.sync.session import Session\nSession.parallel(None)"
    done = python_without(("joblib",), call)
    assert done.returncode == 1
    assert done.stderr.endswith("Install it with: pip install 'berth-platform[joblib]'\n"), done.stderr


def test_client_commands_work_without_server_packages() -> None:
    done = run_without((*SERVER, "textual", "channels", "authlib"), "--help")
    assert done.returncode == 0, done.stderr
    assert "submit" in done.stdout


def test_lock_files_contain_no_urls() -> None:
    for file in sorted(Path(ROOT / "requirements").glob("*.txt")):
        assert "://" not in file.read_text(), file.name
