"""Sum the resource use of pods' processes from /proc; standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pools.runtimes.base import PodUse
from pools.runtimes.shim.processes import process_ids, stat_fields

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MIB = 1024 * 1024
# Of /proc/PID/stat, counted from its third field: the parent, its own time, that of children it buried.
_PARENT, _OWN, _BURIED = 1, (11, 12), (13, 14)


@dataclass(frozen=True)
class _Process:
    parent: int
    own: int
    buried: int


def used_below(keepers: Mapping[str, int]) -> dict[str, PodUse]:
    """By pod, of all processes below its keeper. Whoever loses its parent there comes to the keeper, so none
    escapes; what ended ones used, whoever buried them has. What the keeper itself uses is not the pod's."""
    processes = _all()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    return {
        pod_id: _sum(processes[keeper], _below(keeper, children), processes)
        for pod_id, keeper in keepers.items()
        if keeper in processes
    }


def _all() -> dict[int, _Process]:
    found = {}
    for pid in process_ids():
        fields = stat_fields(pid)
        if fields is not None:
            found[pid] = _Process(
                int(fields[_PARENT]), sum(int(fields[n]) for n in _OWN), sum(int(fields[n]) for n in _BURIED)
            )
    return found


def _below(root: int, children: Mapping[int, list[int]]) -> list[int]:
    found, seen = [], [root]
    while seen:
        below = children.get(seen.pop(), [])
        found += below
        seen += below
    return found


def _sum(keeper: _Process, below: list[int], processes: Mapping[int, _Process]) -> PodUse:
    ticks = keeper.buried + sum(processes[pid].own + processes[pid].buried for pid in below)
    pages = [_pages(pid) for pid in below]
    # Libraries and shared memory are mapped by many and there once: the largest share stands for all.
    resident = sum(own for own, _ in pages) + max((shared for _, shared in pages), default=0)
    return PodUse(ticks / _TICK, resident * _PAGE // _MIB)


def _pages(pid: int) -> tuple[int, int]:
    """Its own, and those that others may have mapped too."""
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except (OSError, ValueError):  # it has ended meanwhile
        return 0, 0
    return max(resident - shared, 0), shared
