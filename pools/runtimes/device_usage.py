"""GPU utilization from `nvidia-smi`; standard library only, since it runs on nodes.

Works with Python's standard library, since it runs on nodes.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence

from pools.runtimes.base import DeviceUse

PROBE = "BERTH_GPU_PROBE"  # a command instead of nvidia-smi; it is given the same arguments
QUESTION = ("--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
PATIENCE_SECONDS = 5.0
SILENT_SECONDS = 300.0  # after it was not there or did not answer
_COLUMNS = 4


class DeviceProbe:
    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = tuple(command)
        self._silent_until = 0.0

    def look(self) -> tuple[DeviceUse, ...]:
        """By index; empty where nobody can tell."""
        if time.monotonic() < self._silent_until:
            return ()
        told = _asked([*(self._command or shlex.split(os.environ.get(PROBE, "nvidia-smi"))), *QUESTION])
        if told is None:
            self._silent_until = time.monotonic() + SILENT_SECONDS
            return ()
        return read(told)


def read(told: str) -> tuple[DeviceUse, ...]:
    """A line per GPU; where it says `[N/A]` or the like, that is not known. Other lines are remarks."""
    found = []
    for line in told.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != _COLUMNS or not _is_number(fields[0]):
            continue
        busy, memory = _number(fields[2]), _number(fields[3])
        found.append(DeviceUse(int(fields[0]), fields[1], None if busy is None else busy * 10, memory))
    return tuple(sorted(found, key=lambda device: device.index))


def _asked(command: list[str]) -> str | None:
    """A driver that hangs keeps its caller for ever: it is killed, and not waited for."""
    try:
        probe = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
    except (OSError, ValueError, IndexError):
        return None
    try:
        output, _ = probe.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        probe.kill()
        if probe.stdout is not None:
            probe.stdout.close()
        return None
    return output.decode("utf-8", "replace") if probe.returncode == 0 else None


def _number(text: str) -> int | None:
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
