"""Upgrade the agent to the server's version without stopping pods."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time

from .scripts import script_env
from .server import Server
from .state import STATE, write_private_file
from .version import VERSION

RETRY_SECONDS = 60.0
# Agents do not report during an upgrade, so it must end before the machine counts as gone (three minutes).
UPGRADE_SECONDS = 110
DOWNLOAD_SECONDS = 30
CHECK_SECONDS = 20


class UpgradeFailed(Exception):
    """Raised if the agent cannot be upgraded. The message contains the reason."""


class Upgrade:
    """Upgrade of the agent's program file. At any time, the file contains a complete agent, either old or
    new.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.file = server, os.path.abspath(sys.argv[0])
        self.error = ""
        self.retry_at = 0.0

    def follow_instructions(self, answer: dict[str, object]) -> None:
        """Upgrade this agent if the server requests an upgrade. Store the error of a failed upgrade."""
        requested = answer.get("upgrade")
        if not isinstance(requested, dict) or requested["version"] == VERSION:
            self.error = ""
            return
        if time.monotonic() < self.retry_at:
            return
        try:
            self._install(requested, answer)
        except (OSError, UpgradeFailed, subprocess.SubprocessError) as error:
            self.error = "The upgrade to %s failed: %s" % (requested["version"], error)
            self.retry_at = time.monotonic() + RETRY_SECONDS
            print(self.error, file=sys.stderr)

    def _install(self, requested: dict[str, object], answer: dict[str, object]) -> None:
        deadline = time.monotonic() + UPGRADE_SECONDS
        content = self.server.download("machines/agent", DOWNLOAD_SECONDS)
        if hashlib.sha256(content).hexdigest() != requested["sha256"]:
            raise UpgradeFailed("the downloaded agent has the wrong checksum")
        draft = write_private_file(self.file + ".next", content)
        done = subprocess.run(
            [sys.executable, draft, "version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=CHECK_SECONDS,
        )  # fmt: skip
        output = done.stdout.decode(errors="replace").strip()
        if done.returncode or output != requested["version"]:
            raise UpgradeFailed("the downloaded agent does not run: %s" % output[-500:])
        self._upgrade_node(str(requested.get("script") or ""), answer, deadline)
        os.replace(draft, self.file)
        print("upgraded from %s to %s" % (VERSION, requested["version"]), file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, self.file, "run"])

    def _upgrade_node(self, script: str, answer: dict[str, object], deadline: float) -> None:
        if not script or not answer.get("node"):
            return
        path = write_private_file(os.path.join(STATE, "upgrade.sh"), script)
        done = subprocess.run(
            ["/bin/sh", path], env=script_env(answer), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False, timeout=max(deadline - time.monotonic(), 1),
        )  # fmt: skip
        if done.returncode:
            output = done.stdout.decode(errors="replace").strip()
            raise UpgradeFailed("the node's script exited with %d: %s" % (done.returncode, output[-500:]))
