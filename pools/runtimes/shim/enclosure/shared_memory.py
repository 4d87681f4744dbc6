"""Directory of the machine's /dev/shm that a workload's pods share as their own /dev/shm.

Each shim holds a shared lock on it, and the last shim deletes it.
"""

from __future__ import annotations

import fcntl
import os


class SharedMemory:
    """Shared memory directory at `path`, owned by `uid`, or by the shim's user if `uid` is 0."""

    def __init__(self, path: str, uid: int) -> None:
        self.path, self.uid = path, uid
        self._fd = -1

    def open(self) -> None:
        """Create and lock the directory.

        Raises OSError, for example if another user has created the directory.
        """
        while self._fd < 0:
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:
                pass
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            if os.fstat(fd).st_uid not in (os.geteuid(), self.uid):
                raise PermissionError(1, f"{self.path} belongs to another user")
            fcntl.flock(fd, fcntl.LOCK_SH)
            if self._is_current(fd):
                self._fd = fd
                if self.uid:
                    os.fchown(fd, self.uid, self.uid)
            else:  # the last pod that used the directory has just deleted it
                os.close(fd)

    def close(self) -> None:
        """Delete the directory unless another pod uses it."""
        if self._fd < 0:
            return
        _delete_unless_locked(self._fd, self.path)

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False


def remove_unused(path: str) -> None:
    """Delete a directory that a killed shim left behind, unless another pod uses it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        _delete_unless_locked(fd, path)
    finally:
        os.close(fd)


def _delete_unless_locked(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    try:
        os.rmdir(path)
    except OSError:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
