"""GPU utilization from `nvidia-smi`; standard library only, since it runs on nodes."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence

from pools.runtimes.base import DeviceUse

PROBE = "BERTH_GPU_PROBE"  # command that replaces nvidia-smi and receives the same arguments
QUERY = ("--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
PATIENCE_SECONDS = 5.0
SILENT_SECONDS = 300.0  # pause after a missing or failed probe
_COLUMNS = 4


class DeviceProbe:
    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = tuple(command)
        self._silent_until = 0.0

    def look(self) -> tuple[DeviceUse, ...]:
        """Return the utilization of each GPU by index; empty if it cannot be measured."""
        if time.monotonic() < self._silent_until:
            return ()
        output = _output([*(self._command or shlex.split(os.environ.get(PROBE, "nvidia-smi"))), *QUERY])
        if output is None:
            self._silent_until = time.monotonic() + SILENT_SECONDS
            return ()
        return read(output)


def read(output: str) -> tuple[DeviceUse, ...]:
    """Parse one line per GPU. Values such as `[N/A]` become None; other lines are ignored."""
    devices = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != _COLUMNS or not _is_number(fields[0]):
            continue
        busy, memory = _number(fields[2]), _number(fields[3])
        devices.append(DeviceUse(int(fields[0]), fields[1], None if busy is None else busy * 10, memory))
    return tuple(sorted(devices, key=lambda device: device.index))


def _output(command: list[str]) -> str | None:
    """Return the output, or None on failure. A probe hanging in the driver is killed but not awaited."""
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
