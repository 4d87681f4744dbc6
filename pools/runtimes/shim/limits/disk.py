"""Measure the disk usage of directories with `du`, in the background."""

from __future__ import annotations

import os
import time

PAUSE_FACTOR = 100  # minimum pause between measurements, as a multiple of a measurement's duration
FIRST_SECONDS = 2.0  # seconds from the pod's start to the first measurement
KIB = 1024


class DiskUsage:
    """Disk usage of `paths`, measured every `interval` seconds, or less often if `du` is slow.

    `helpers` contains the process ID of `du` while it runs.
    """

    def __init__(self, paths: list[str], interval: float, helpers: set[int]) -> None:
        self.paths, self.interval, self.helpers = paths, interval, helpers
        self.due = time.monotonic() + min(interval, FIRST_SECONDS)
        self._pid = 0
        self._output = -1
        self._data = b""
        self._started = 0.0

    def start(self) -> None:
        """Start `du`. When it exits, the shim's child handler wakes the event loop."""
        self.due = float("inf")
        self._started = time.monotonic()
        self._output, write_fd = os.pipe()
        os.set_blocking(self._output, False)
        self._data = b""
        self._pid = os.fork()
        if self._pid == 0:
            self._exec(write_fd)
        os.close(write_fd)
        self.helpers.add(self._pid)

    def read(self) -> int | None:
        """Return a new measurement in bytes, -1 if `du` failed, or None if there is no new result."""
        if not self._pid:
            return None
        try:
            while data := os.read(self._output, 4096):
                self._data += data
        except BlockingIOError:
            return None
        os.close(self._output)
        self.helpers.discard(self._pid)
        self._pid = 0
        now = time.monotonic()
        self.due = now + max(self.interval, (now - self._started) * PAUSE_FACTOR)
        sizes = [
            line.split()[0] for line in self._data.decode("utf-8", "replace").splitlines() if line.strip()
        ]
        numbers = [int(size) for size in sizes if size.isdigit()]
        return sum(numbers) * KIB if numbers else -1

    def stop(self) -> None:
        self.due = float("inf")

    def _exec(self, write_fd: int) -> None:
        """Replace this process with `du`, which measures allocated space and counts hard-linked files only
        once.
        """
        try:
            os.nice(19)
            os.dup2(write_fd, 1)
            os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
            os.execvpe("du", ["du", "-skx", "--", *self.paths], environment)  # noqa: S606
        finally:
            os._exit(127)
