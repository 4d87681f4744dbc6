"""Adopt orphaned processes, such as the shims of running pods."""

import ctypes
import os
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the new parent of any descendant whose parent exits."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def find_orphans(own_pids: Collection[int | None]) -> list[int]:
    """Return the IDs of live child processes that this process did not start."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [pid for pid in map(int, listed.split()) if pid not in own_pids and not _reap(pid)]


def reap_orphans(own_pids: Collection[int | None]) -> None:
    while (exited_pid := _ended_child()) and exited_pid not in own_pids:
        _reap(exited_pid)


def process_identity() -> str:
    """Return this process's ID with its start time, because the kernel reuses process IDs."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return f"{os.getpid()}:{fields[19]}"


def _ended_child() -> int | None:
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended else None


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
