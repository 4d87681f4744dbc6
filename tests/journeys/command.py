"""Run the `berth` command as a signed-in user."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.client import Client
from berth.client.config import load_settings
from tests.journeys.installation import ROOT, Installation


@dataclass(frozen=True)
class Terminal:
    """A user's shell. `config` is the directory with the configuration that `berth login` wrote."""

    address: str
    config: Path

    def berth(self, *words: str, stdin: str = "", exits: int = 0) -> str:
        return self._run(words, stdin, exits).stdout

    def typed(self, *words: str) -> str:
        """Run a command on a terminal, and return everything that it prints."""
        line = shlex.join([sys.executable, "-m", "berth.cli.main", *words])
        done = subprocess.run(
            ["script", "-qec", line, "/dev/null"], env=self._environment() | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=180,
        )  # fmt: skip
        return done.stdout

    def rejected(self, *words: str) -> str:
        """Run a command that is rejected because of its input, and return its error message."""
        return self._run(words, "", 2).stderr

    def _run(self, words: tuple[str, ...], stdin: str, exits: int) -> "subprocess.CompletedProcess[str]":
        env = self._environment()
        done = subprocess.run(
            [sys.executable, "-m", "berth.cli.main", *words],
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == exits, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def _environment(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("BERTH_")}
        return own | {
            "XDG_CONFIG_HOME": str(self.config),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")]),
            "COLUMNS": "200",
        }

    def client(self) -> Client:
        """Return a Python client for the user, which is faster than the command."""
        return Client(load_settings({"XDG_CONFIG_HOME": str(self.config)}))

    def json(self, *words: str) -> Any:
        return json.loads(self.berth(*words, "-o", "json"))


def sign_in(installation: Installation, name: str, config: Path) -> Terminal:
    """Sign in as admin or as a demo user with the password from the home directory."""
    if name == "admin":
        password = (installation.home / "admin-password").read_text().strip()
    else:
        lines = (installation.home / "demo-passwords").read_text().splitlines()
        password = dict(line.split(" ", 1) for line in lines)[name]
    return log_in(f"http://127.0.0.1:{installation.port}", name, password, config)


def log_in(address: str, name: str, password: str, config: Path) -> Terminal:
    terminal = Terminal(address, config)
    config.mkdir()
    terminal.berth("login", address, "-u", name, "--password-stdin", stdin=password)
    return terminal
