"""Sum the resource usage of each pod's processes from /proc. This module uses only the standard library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pools.runtimes.base import PodUsage
from pools.runtimes.shim.processes import process_ids, stat_fields

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024
# Field indexes in /proc/PID/stat, not counting the first two fields.
# The fields are the parent's PID, the process's CPU time, and the CPU time of its reaped children.
_PARENT, _OWN, _REAPED = 1, (11, 12), (13, 14)


@dataclass(frozen=True)
class _ProcessTimes:
    parent: int
    own: int
    reaped: int


def usage_by_pod(shims: Mapping[str, int]) -> dict[str, PodUsage]:
    """Return each pod's resource usage, summed over its shim's descendants.

    The CPU time of an exited process is attributed to the process that waited for it.
    """
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    return {
        pod_id: _pod_usage(processes[shim], _descendants(shim, children), processes)
        for pod_id, shim in shims.items()
        if shim in processes
    }


def _processes() -> dict[int, _ProcessTimes]:
    processes = {}
    for pid in process_ids():
        fields = stat_fields(pid)
        if fields is not None:
            processes[pid] = _ProcessTimes(
                int(fields[_PARENT]), sum(int(fields[n]) for n in _OWN), sum(int(fields[n]) for n in _REAPED)
            )
    return processes


def _descendants(root: int, children: Mapping[int, list[int]]) -> list[int]:
    below_root, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        below_root += below
        pending += below
    return below_root


def _pod_usage(shim: _ProcessTimes, below: list[int], processes: Mapping[int, _ProcessTimes]) -> PodUsage:
    ticks = shim.reaped + sum(processes[pid].own + processes[pid].reaped for pid in below)
    pages = [_memory_pages(pid) for pid in below]
    # Every process that maps a shared page counts it, so add only the largest count of shared pages.
    resident = sum(own for own, _ in pages) + max((shared for _, shared in pages), default=0)
    return PodUsage(ticks / _TICK, resident * _PAGE // _MIB)


def _memory_pages(pid: int) -> tuple[int, int]:
    """Return the numbers of private and shared memory pages of a process."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):  # the process has ended since it was listed
        return 0, 0
    return max(resident - shared, 0), shared
