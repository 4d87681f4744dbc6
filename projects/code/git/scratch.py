"""Private directories for fetches. Directories of killed processes are deleted too."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "fetch-"
MEMORY = Path("/dev/shm")  # noqa: S108 - only a directory of this user in it is used


@contextmanager
def scratch_directory(base: Path) -> Iterator[Path]:
    """Create a directory that only this user can read, and delete it afterwards.

    A lock protects it from `sweep_scratch_directories`.
    """
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked_directory(base, fcntl.LOCK_SH):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep_scratch_directories(base: Path) -> int:
    """Delete directories that killed processes have left behind. Return the number of deleted directories."""
    if not base.is_dir():
        return 0
    count = 0
    with _locked_directory(base, fcntl.LOCK_EX):
        for path in base.glob(f"{PREFIX}*"):
            with (
                suppress(BlockingIOError, FileNotFoundError),
                _locked_directory(path, fcntl.LOCK_EX | fcntl.LOCK_NB),
            ):
                shutil.rmtree(path, ignore_errors=True)
                count += 1
    return count


def key_directory(base: Path) -> Path:
    """Return a directory for key files. It is in memory if possible, otherwise it is `base`."""
    path = MEMORY / f"berth-git-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return base
    is_private = status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) == 0o700
    return path if stat.S_ISDIR(status.st_mode) and is_private else base


@contextmanager
def _locked_directory(directory: Path, operation: int) -> Iterator[None]:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, operation)
        yield
    finally:
        os.close(file)
