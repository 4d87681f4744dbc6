"""Measure GPU utilization with `nvidia-smi`. Nodes run this module, so it uses only the standard library."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence

from pools.runtimes.base import DeviceUsage
from pools.runtimes.enclosure.devices import simulates_gpus

# Environment variable that contains a command to run instead of nvidia-smi, with the same arguments.
PROBE_VARIABLE = "BERTH_GPU_PROBE"
QUERY = ("--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
PROBE_TIMEOUT_SECONDS = 5.0
RETRY_SECONDS = 300.0  # pause after nvidia-smi has failed or was not found
_COLUMNS = 4


class DeviceProbe:
    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = tuple(command)
        self._paused_until = 0.0

    def measure(self) -> tuple[DeviceUsage, ...]:
        """Return the utilization of each GPU, in index order, or an empty tuple if it cannot be measured."""
        command = self._command or _configured_command()
        if not command or time.monotonic() < self._paused_until:
            return ()
        output = _run_probe([*command, *QUERY])
        if output is None:
            self._paused_until = time.monotonic() + RETRY_SECONDS
            return ()
        return parse_output(output)


def _configured_command() -> Sequence[str]:
    """Return the command that measures the GPUs, or [] if they are simulated."""
    return shlex.split(os.environ.get(PROBE_VARIABLE) or ("" if simulates_gpus() else "nvidia-smi"))


def parse_output(output: str) -> tuple[DeviceUsage, ...]:
    """Parse the CSV output of nvidia-smi, one GPU per line. Values such as `[N/A]` become None."""
    devices = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != _COLUMNS or not _is_number(fields[0]):
            continue
        busy, memory = _parse_number(fields[2]), _parse_number(fields[3])
        devices.append(DeviceUsage(int(fields[0]), fields[1], None if busy is None else busy * 10, memory))
    return tuple(sorted(devices, key=lambda device: device.index))


def _run_probe(command: list[str]) -> str | None:
    """Run nvidia-smi and return its output, or None on failure or timeout."""
    try:
        probe = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
    except (OSError, ValueError, IndexError):
        return None
    try:
        output, _ = probe.communicate(timeout=PROBE_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        probe.kill()
        if probe.stdout is not None:
            probe.stdout.close()
        return None
    return output.decode("utf-8", "replace") if probe.returncode == 0 else None


def _parse_number(text: str) -> int | None:
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
