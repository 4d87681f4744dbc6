"""CPU time that processes have used."""

import contextlib

import psutil


def own_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process without its children, in seconds."""
    times = process.cpu_times()
    return times.user + times.system


def tree_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process, its living children and its ended children, in seconds."""
    times = process.cpu_times()
    total = times.user + times.system + times.children_user + times.children_system
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            total += own_seconds(child)
    return total
