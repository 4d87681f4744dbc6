"""Periodic checks of a running pod: its log, out-of-memory kills, and disk usage."""

from __future__ import annotations

import os
import time

from pools.runtimes.shim.limits.cgroups import MEMORY
from pools.runtimes.shim.limits.disk import DiskUsage
from pools.runtimes.shim.logs.podlog import CHECK_SECONDS, PodLog
from pools.runtimes.shim.records import write_record
from pools.runtimes.shim.wakes import wake_listeners

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from pools.runtimes.shim.pod import Pod

MIB = 1024 * 1024
WARN_SECONDS = 60.0  # minimum time between memory warnings
WARN_PERCENT = 90
WORKSPACE_FULL = "workspace_full"


class Checks:
    """Periodic checks of one pod.

    If a check has stopped the pod, `message` says why. Otherwise, it is empty.
    """

    def __init__(self, pod: Pod, log: PodLog) -> None:
        self.pod, self.log, self.message = pod, log, ""
        self._due = time.monotonic() + CHECK_SECONDS
        self._disk = _disk_usage(pod)
        self._limit = int(pod.order.get("limit_disk", "0"))
        self._kills = self._warnings = 0
        self._next_memory_warning = 0.0
        self._is_nearly_full = False

    def seconds_left(self) -> float:
        due = self._due if self._disk is None else min(self._due, self._disk.due)
        return max(due - time.monotonic(), 0.0)

    def run(self) -> None:
        """Run all checks that are due."""
        now = time.monotonic()
        if self._disk is not None:
            self._check_disk(self._disk)
            if self._disk.due <= now:
                self._disk.start()
        if self._due <= now:
            self._due = now + CHECK_SECONDS
            self.log.check()
            self._check_memory(now)

    def _check_memory(self, now: float) -> None:
        """Warn about out-of-memory kills of child processes, at most once in WARN_SECONDS."""
        kills = self.pod.cgroups.memory_kills()
        if kills == self._kills or now < self._next_memory_warning or self.pod.wait_status is not None:
            return
        added, self._kills = kills - self._kills, kills
        self._next_memory_warning = now + WARN_SECONDS
        processes = "1 process was" if added == 1 else f"{added} processes were"
        if self.pod.cgroups.limits[MEMORY]:
            self._warn(f"{processes} killed at the memory limit: {self.pod.describe_memory()}")
        else:
            self._warn(f"{processes} killed because the node ran out of memory")

    def _check_disk(self, disk: DiskUsage) -> None:
        """Warn when disk usage approaches the limit, and stop the pod when usage reaches it."""
        used = disk.read()
        if used is None or self.pod.deadline is not None:
            return
        numbers = f"limit {self._limit // MIB} MiB, used {used // MIB} MiB"
        was_nearly_full, self._is_nearly_full = self._is_nearly_full, used * 100 >= self._limit * WARN_PERCENT
        if used < 0:
            disk.stop()
            self._warn("the disk space that the pod uses cannot be measured, so its limit is not enforced")
        elif used >= self._limit:
            self.message = f"the workspace is full: {numbers}"
            self.pod.stop(WORKSPACE_FULL, float(self.pod.order["grace"]))
        elif self._is_nearly_full and not was_nearly_full:
            self._warn(f"the workspace is nearly full: {numbers}")

    def _warn(self, text: str) -> None:
        self._warnings += 1
        record = [("number", str(self._warnings)), ("text", text)]
        write_record(f"{self.pod.directory}/warning", record, durable=False)
        wake_listeners(self.pod.order["wake_dir"])


def _disk_usage(pod: Pod) -> DiskUsage | None:
    if "limit_disk" not in pod.order:
        return None
    paths = [pod.env["BERTH_WORKSPACE"], *(f"{pod.directory}/{name}" for name in ("work", "tmp", "var-tmp"))]
    existing = [path for path in paths if os.path.isdir(path)]
    return DiskUsage(existing, float(pod.order["disk_interval"]), pod.helpers)
