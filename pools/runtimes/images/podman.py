"""Run podman commands for one pod, and kill them if the pod must stop.

This module avoids slow imports, because the shim imports it for each pod with an image.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import ctypes
import os
import time
from collections.abc import Callable, Mapping

from pools.runtimes.images.store import ImageStore
from pools.runtimes.shim.interrupts import Interrupts

COMMAND_SECONDS = 300.0
POLL_SECONDS = 0.5
EMPTY: Mapping[str, str] = {}
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class PodmanTimeout(Exception):
    """Raised after a podman command has been killed because it took too long."""


class PodmanOutput:
    """Result of a podman command: exit code, stdout and stderr.

    The exit code is 128 or higher if a signal ended the command.
    """

    def __init__(self, code: int, text: str, errors: str) -> None:
        self.code, self.text, self.errors = code, text, errors


class Podman:
    """Runner for one pod's podman commands, whose output goes to files in the pod's directory.

    `variables` are settings of the node, such as proxies. podman is killed if this process exits.
    """

    def __init__(
        self, store: ImageStore, directory: str, variables: list[str], interrupts: Interrupts
    ) -> None:
        self.store, self._directory, self._interrupts = store, directory, interrupts
        self.temporary = f"{directory}/podman"
        # The runtime finds leftover processes by their BERTH_POD_DIR and kills them.
        own = [f"BERTH_POD_DIR={directory}/work", f"TMPDIR={self.temporary}"]
        self._environment = store.environment([*variables, *own])
        self._libc = ctypes.CDLL(None)

    def adopt_orphans(self) -> None:
        """Make this process the parent of its orphaned descendants."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(
        self, *arguments: str, watch: Callable[[int], None] | None = None, seconds: float = COMMAND_SECONDS,
        interruptible: bool = True, variables: Mapping[str, str] = EMPTY,
    ) -> PodmanOutput:  # fmt: skip
        """Run a podman command with additional environment `variables`.

        `watch` receives the process ID twice a second. Raises PodmanTimeout after `seconds`, and Interrupted
        if the command is interruptible and the pod must stop.
        """
        if not os.path.isdir(self.temporary):
            os.mkdir(self.temporary, 0o700)
        names = [f"{self._directory}/podman.{kind}" for kind in ("out", "err")]
        pid = os.fork()
        if pid == 0:
            self._exec(arguments, names, {**self._environment, **variables})
        try:
            status = self._wait(pid, watch, time.monotonic() + seconds, interruptible)
        except BaseException:
            os.kill(pid, signal.SIGKILL)  # podman's children die with it
            os.waitpid(pid, 0)
            raise
        code = os.waitstatus_to_exitcode(status)
        return PodmanOutput(code if code >= 0 else 128 - code, *(_read(name) for name in names))

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`. Raises Interrupted if the pod must stop."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self._interrupts.wait(remaining)

    def _wait(
        self, pid: int, watch: Callable[[int], None] | None, deadline: float, interruptible: bool
    ) -> int:
        fd = os.pidfd_open(pid)
        try:
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return status
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise PodmanTimeout("podman did not finish in time")
                self._interrupts.wait(min(remaining, POLL_SECONDS), fd, interruptible)
                if watch is not None:
                    watch(pid)
        finally:
            os.close(fd)

    def _exec(self, arguments: tuple[str, ...], outputs: list[str], environment: dict[str, str]) -> None:
        try:
            os.setsid()
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for fd, name in enumerate(outputs, 1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), fd)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir("/")
            os.execvpe("podman", ["podman", *arguments], environment)  # noqa: S606
        except BaseException as error:  # the forked child must exit here, even after an unexpected error
            os.write(2, f"Error: {error}".encode())
        os._exit(127)


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
