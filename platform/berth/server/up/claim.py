"""Ensure that only one Berth server uses a home directory."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from berth.server.up.trouble import CannotStart


@contextmanager
def claimed(home: Path) -> Iterator[TextIO]:
    """Hold a lock file, which the kernel releases when this process ends. A second process shows its text."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "berth.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise CannotStart(f"Berth is already running: {lock.read().strip() or home}.") from None
        say(lock, "starting")
        yield lock
        lock.truncate(0)


def say(lock: TextIO, address: str) -> None:
    lock.truncate(0)
    lock.write(f"{address}, process {os.getpid()}\n")
    lock.flush()
