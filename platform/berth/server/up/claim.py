"""Ensure that only one Berth server uses a home directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from berth.server.up.errors import StartupError


@contextmanager
def lock_home_directory(home: Path) -> Iterator[TextIO]:
    """Lock the home directory for this process and user, and yield the lock file.

    If another process holds the lock, raises StartupError with the file's content.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _restrict_to_owner(home)
    with (home / "berth.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise StartupError(f"Berth is already running: {lock.read().strip() or home}.") from None
        write_status(lock, "starting")
        yield lock
        lock.truncate(0)


def _restrict_to_owner(home: Path) -> None:
    status = home.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        home.chmod(0o700)


def write_status(lock: TextIO, address: str) -> None:
    lock.truncate(0)
    lock.write(f"{address}, process {os.getpid()}\n")
    lock.flush()
