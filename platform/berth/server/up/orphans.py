"""Adopt orphaned processes, such as the keepers of running pods."""

import ctypes
import os
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the new parent of descendants whose own parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def orphans(own: Collection[int | None]) -> list[int]:
    """Return the pids of live children that this process did not start."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [pid for pid in map(int, listed.split()) if pid not in own and not _reap(pid)]


def reap_orphans(own: Collection[int | None]) -> None:
    while (dead := _ended_child()) and dead not in own:
        _reap(dead)


def anchor() -> str:
    """Return an id of this process that includes its start time, because the kernel reuses process ids."""
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
