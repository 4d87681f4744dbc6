"""A user with the real OpenSSH client, configured with Berth's hosts."""

import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.channels.conftest import PATIENCE, Site

PIPES: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
HOST = "train.vision.berth"


class SshUser:
    def __init__(self, site: Site, home: Path) -> None:
        self.site, self.home = site, home
        self.config = home / ".ssh" / "config"
        self.env = {
            **site.environment(), "HOME": str(home),
            "BERTH_CONFIG": str(home / "settings" / "config.toml"),
        }  # fmt: skip

    def berth(self, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        program = self.site.start(*arguments, **PIPES, environment=self.env)
        output, errors = program.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, program.returncode, output, errors)

    def include_hosts(self) -> None:
        """Add Berth's hosts to the SSH configuration with `berth ssh --config`."""
        done = self.site.run("ssh", "--config", environment=self.env)
        assert done.returncode == 0, done.stderr

    def proxy_command(self) -> list[str]:
        text = (self.home / "settings" / "ssh" / "config").read_text()
        line = next(line for line in text.splitlines() if "ProxyCommand" in line)
        return shlex.split(line)[1:-1]

    def start(self, program: str, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
        return self._start(program, "-F", str(self.config), *arguments, **options)

    def _start(self, *command: str, **options: Any) -> "subprocess.Popen[bytes]":
        started = subprocess.Popen(command, env=self.env, **options)
        self.site.programs.append(started)
        return started

    def run(
        self, *arguments: str, data: bytes = b"", program: str = "ssh"
    ) -> "subprocess.CompletedProcess[bytes]":
        return self.run_program(program, "-F", str(self.config), *arguments, data=data)

    def run_program(self, *command: str, data: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        started = self._start(*command, **PIPES)
        output, errors = started.communicate(data, timeout=PATIENCE)
        return subprocess.CompletedProcess(command, started.returncode, output, errors)
