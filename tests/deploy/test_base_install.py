"""Tests for the client wheel without extras, installed from the package index on each supported Python."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.interpreters import find_python

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PACKAGES_MAX, MEGABYTES_MAX = 30, 45
IMPORT_ALL = """
import importlib, pkgutil, berth.cli, berth.client
for package in berth.cli, berth.client:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(error.name, module.name)
"""
MODULES_NEEDING_EXTRAS = {
    "asyncssh berth.cli.ssh.ports",
    "asyncssh berth.cli.ssh.server",
    "asyncssh berth.cli.ssh.sessions",
    "joblib berth.client.sessions.parallel",
    "textual berth.cli.top.app",
    "textual berth.cli.top.cluster_app",
    "textual berth.cli.top.refreshing",
}


@dataclass(frozen=True, slots=True)
class BaseInstall:
    """A virtual environment that contains the wheel and its dependencies, but no pip."""

    version: str
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment without the checkout on its path."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "PYTHON"))}
        return subprocess.run(
            [str(self.folder / "bin" / command[0]), *command[1:]],
            env=env, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def add(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Install packages with the test environment's pip."""
        python = str(self.folder / "bin" / "python")
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @property
    def packages(self) -> Path:
        return self.folder / "lib" / f"python{self.version}" / "site-packages"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def server_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT / "deploy" / "server", tmp_path_factory.mktemp("server-wheel"))


def build_wheel(folder: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module", params=VERSIONS)
def install(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> BaseInstall:
    python = find_python(request.param)
    if python is None:
        pytest.skip(f"Python {request.param} is not installed on this machine")
    folder = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    install = BaseInstall(request.param, folder)
    done = install.add(str(wheel))
    assert done.returncode == 0, done.stderr
    return install


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--version",), "berth 0."),
        (("--help",), "quota and fair share"),
        (("submit", "--help"), "--replicas"),
        (("help",), "berth help exit-codes"),
        (("help", "exit-codes"), "not signed in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_cli_command_runs_without_extras(
    install: BaseInstall, arguments: tuple[str, ...], expected: str
) -> None:
    done = install.run("berth", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout


def test_only_listed_cli_and_client_modules_need_an_extra(install: BaseInstall) -> None:
    done = install.run("python", "-W", "error", "-c", IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == MODULES_NEEDING_EXTRAS


def test_cli_reference_is_identical_on_every_python_version(install: BaseInstall, tmp_path: Path) -> None:
    done = install.run("python", "-m", "berth.cli.reference", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.md"))
    assert {tmp_path / "cli.md", tmp_path / "cli" / "workloads.md"} <= set(pages)
    for page in pages:
        assert page.read_text() == (ROOT / "docs" / page.relative_to(tmp_path)).read_text(), page


def test_simulation_runs_without_extras(install: BaseInstall) -> None:
    done = install.run("berth", "simulate", str(ROOT / "examples" / "scenarios" / "pieces.yaml"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "consolidate small-2 for large: 1 x worker from n1 to n0" in done.stdout


def test_error_for_a_server_command_names_the_missing_extra_or_python_version(install: BaseInstall) -> None:
    old = install.version == "3.10"
    missing = "needs Python 3.11 or newer. This is Python 3.10." if old else "berth-platform[server]"
    for arguments in (("up",), ("admin", "backup", "file")):
        done = install.run("berth", *arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert missing in done.stderr


def test_base_install_stays_below_the_size_limit(install: BaseInstall) -> None:
    packages = sorted(path.name for path in install.packages.glob("*.dist-info"))
    size = sum(path.stat().st_size for path in install.packages.rglob("*") if path.is_file()) / 10**6
    assert len(packages) <= PACKAGES_MAX, packages
    assert size < MEGABYTES_MAX


def test_server_in_a_source_checkout_requires_python_3_11(install: BaseInstall) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'platform')!r}); import berth.server"
    done = install.run("python", "-c", code)
    is_rejected = done.stderr.startswith("berth: The server needs Python 3.11 or newer.")
    assert is_rejected == (install.version == "3.10"), done.stderr


def test_server_wheel_needs_python_3_11_and_adds_its_files_to_the_client(
    install: BaseInstall, server_wheel: Path, tmp_path: Path
) -> None:
    done = install.add("--no-deps", "--target", str(tmp_path), str(server_wheel))
    if install.version == "3.10":
        assert "requires a different Python" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "berth" / "templates" / "base.html").is_file()
    clients = {path.relative_to(install.packages) for path in install.packages.rglob("*.py")}
    assert clients.isdisjoint(path.relative_to(tmp_path) for path in tmp_path.rglob("*.py"))
