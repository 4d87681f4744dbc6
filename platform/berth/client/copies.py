"""Results and progress of copies to and from pods."""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MESSAGES_MAX = 1000
MESSAGE_BYTES_MAX = 16 * 1024
Progress = Callable[[int, int | None], None]  # receives the bytes copied so far and, if known, the total


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Number and total bytes of copied files.

    `skipped` contains a message for each skipped file, but at most 1,000 messages for a copy from a pod.
    """

    files: int
    size: int
    skipped: Sequence[str] = ()


class ErrorLines:
    """Lines that a program in a pod wrote to standard error.

    Only the first lines and the last line are kept, and long lines are truncated.
    """

    def __init__(self) -> None:
        self.last = ""
        self._first: list[str] = []
        self._count = 0
        self._line = bytearray()  # the last line, which is still incomplete

    def feed(self, data: bytes) -> None:
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._extend(part)
            self.end()
        self._extend(rest)

    def end(self) -> None:
        """Complete the last line, which may lack a line break."""
        text = self._line.decode("utf-8", "replace").strip()
        self._line.clear()
        if not text:
            return
        self.last = text
        self._count += 1
        if self._count <= MESSAGES_MAX:
            self._first.append(text)

    def summarize(self) -> list[str]:
        """Return the first lines. If there are more, add a line that states how many."""
        hidden = self._count - len(self._first)
        return self._first + [f"{hidden:,} more (the first {MESSAGES_MAX:,} are listed)"] * bool(hidden)

    def _extend(self, part: bytes) -> None:
        self._line += part[: MESSAGE_BYTES_MAX - len(self._line)]


def total_size(source: str) -> int:
    """Return the size in bytes of a local file, or of all files in a local directory."""
    if Path(source).is_file():
        return Path(source).stat().st_size
    size = 0
    for directory, _, names in os.walk(source):
        for name in names:
            with suppress(OSError):
                status = Path(directory, name).lstat()
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size
