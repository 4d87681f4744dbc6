"""Measure the resource usage of pods through their control groups.

This module uses only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pools.runtimes.base import PodUsage
from pools.runtimes.shim.limits.cgroups import CPU, MEMORY, USAGE

_MIB = 1024 * 1024
_NANOSECONDS, _MICROSECONDS = 1e-9, 1e-6


def cgroup_usage(groups: Mapping[str, str]) -> PodUsage | None:
    """Return the usage that a pod's control groups report, or None if it is unknown.

    Memory is the working set, as in Kubernetes: it excludes page cache that was not used recently.
    """
    cpu_seconds, memory = _cpu_seconds(groups), _working_set(groups.get(MEMORY))
    return None if cpu_seconds is None or memory is None else PodUsage(cpu_seconds, memory // _MIB)


def _cpu_seconds(groups: Mapping[str, str]) -> float | None:
    for group in (groups.get(USAGE), groups.get(CPU)):
        if group is None:
            continue
        version_1, version_2 = (
            _read(f"{group}/cpuacct.usage"),
            _read_statistic(f"{group}/cpu.stat", "usage_usec"),
        )
        if version_1.isdigit():
            return int(version_1) * _NANOSECONDS
        if version_2 is not None:
            return version_2 * _MICROSECONDS
    return None


def _working_set(group: str | None) -> int | None:
    for current, inactive in (
        ("memory.current", "inactive_file"),
        ("memory.usage_in_bytes", "total_inactive_file"),
    ):
        used = _read(f"{group}/{current}")
        if used.isdigit():
            return max(int(used) - (_read_statistic(f"{group}/memory.stat", inactive) or 0), 0)
    return None


def _read_statistic(path: str, name: str) -> int | None:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
