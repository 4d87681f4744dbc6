"""Fixtures for CLI tests: a terminal, isolated settings and the `berth` command."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from berth.cli.main import app
from projects.services.people import tokens
from tests.cast import Cast, make_cast
from tests.cli.terminal import Terminal

RUN = [sys.executable, "-m", "berth.cli.main"]
ROOT = Path(__file__).resolve().parents[2]
Berth = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    monkeypatch.setenv("BERTH_CONFIG", str(tmp_path / "config.toml"))
    for name in ("BERTH_URL", "BERTH_TOKEN", "BERTH_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(monkeypatch)


@pytest.fixture
def cast() -> Cast:
    return make_cast()


@pytest.fixture
def environment(live_server: Any, tmp_path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    return {
        **inherited, "BERTH_CONFIG": str(tmp_path / "config.toml"), "BERTH_URL": live_server.url,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]), "COLUMNS": "80",
    }  # fmt: skip


@pytest.fixture
def berth(environment: dict[str, str]) -> Berth:
    def run(*arguments: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(app, list(arguments), input=typed, env={**environment, **more})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def berth_process(environment: dict[str, str]) -> Berth:
    def run(*arguments: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*RUN, *arguments],
            input=typed,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def token_of(person: Any) -> str:
    return tokens.issue(actor=person, name="test", scopes=["read", "write", "admin"], expires_at=None)[1]
