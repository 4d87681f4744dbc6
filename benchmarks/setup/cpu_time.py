"""Read the CPU time that processes have used."""

import contextlib

import psutil


def own_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used, without its children."""
    times = process.cpu_times()
    return times.user + times.system


def tree_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds used by a process and all its children, including children that have ended."""
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            total += own_seconds(child)
    return total
