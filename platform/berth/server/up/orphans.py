"""Adopt orphaned processes: the keepers of running pods."""

import ctypes
import os
from collections.abc import Collection
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def take_in_orphans() -> None:
    """From now on a descendant whose parent ends becomes a child of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def orphans(own: Collection[int | None]) -> list[int]:
    """Children of this process that it did not start itself."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [pid for pid in map(int, listed.split()) if pid not in own and not _bury(pid)]


def bury_orphans(own: Collection[int | None]) -> None:
    while (dead := _somebody_dead()) and dead not in own:
        _bury(dead)


def anchor() -> str:
    """Names this process for those who end when it does: a process id alone could be given away again."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return f"{os.getpid()}:{fields[19]}"


def _somebody_dead() -> int | None:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found else None


def _bury(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
