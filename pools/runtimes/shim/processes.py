"""Find, identify and signal processes. The start time protects against reused process IDs."""

from __future__ import annotations

import os


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_time(pid: int) -> str:
    """Return the process's start time in ticks since boot, or "" if it has ended.

    A process is identified by its ID and start time.
    """
    fields = stat_fields(pid)
    return fields[19] if fields else ""


def process_ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Return the process IDs of all descendants of `root`, parents first."""
    children: dict[int, list[int]] = {}
    for pid in process_ids():
        fields = stat_fields(pid)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    below_root, pending = [], [root]
    while pending:
        below = children.get(pending.pop(), [])
        below_root += below
        pending += below
    return below_root


def current_descendants(root: int) -> list[int]:
    """Return descendants of `root`, parents first, without scanning all processes.

    Some may be missing while other processes end: repeat the call until none are left.
    """
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):  # some kernels do not list children
        return descendants(root)
    below_root, pending = [], [root]
    while pending:
        below = children(pending.pop())
        below_root += below
        pending += below
    return below_root


def children(pid: int) -> list[int]:
    """Return the IDs of the process's children, including children that its other threads started.

    Some may be missing while other processes end.
    """
    below = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                below += [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):  # the process or thread has ended
        pass
    return below


def process_group(pid: int) -> int | None:
    fields = stat_fields(pid)
    return int(fields[2]) if fields else None


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] != "Z"


def handles_signal(pid: int, number: int) -> bool:
    """Return whether the process handles the signal itself."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read().split(b"\n")
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next((line for line in lines if line.startswith(b"SigCgt:")), b"SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def open_anchor_pidfd(text: str) -> int | None:
    """Open a pidfd for the process identified by `pid:start_time`. Return None if the process has exited."""
    pid, _, start = text.partition(":")
    try:
        fd = os.pidfd_open(int(pid))
    except ProcessLookupError:
        return None
    if start_time(int(pid)) != start:
        os.close(fd)
        return None
    return fd
