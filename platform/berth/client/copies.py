"""Results and progress of copies to and from pods."""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[int, int | None], None]  # bytes copied, and their total if it is known


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Number of files copied and their bytes. `skipped` has a message for each file that was left out."""

    files: int
    size: int
    skipped: Sequence[str] = ()


def total_size(source: str) -> int:
    """Return the bytes in a local file, or in the files of a local directory."""
    if Path(source).is_file():
        return Path(source).stat().st_size
    size = 0
    for directory, _, names in os.walk(source):
        for name in names:
            with suppress(OSError):
                status = Path(directory, name).lstat()
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size
