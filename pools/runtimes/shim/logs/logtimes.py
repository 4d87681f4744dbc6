"""Record the times when a pod wrote its log, in a file beside the log.

An entry consists of two 64-bit integers: an offset, and the Unix time in milliseconds of the last byte before
it. Earlier bytes of the entry are at most one check interval older. A time of 0 means that the time is
unknown. Readers ignore an incomplete entry.
"""

from __future__ import annotations

import os
import time

ENTRY_BYTES = 16
LIMIT_SHARE = 16  # the timestamp file may be at most 1/16 of the log's size limit
LIMIT_MIN = 64 * 1024

TYPE_CHECKING = False  # avoids importing `typing` and `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable


def times_path(log_path: str) -> str:
    return f"{log_path}.times"


def encode_entry(end: int, milliseconds: int) -> bytes:
    return end.to_bytes(8, "little") + milliseconds.to_bytes(8, "little")


def decode_entry(data: bytes, index: int = 0) -> tuple[int, int]:
    at = index * ENTRY_BYTES
    end, milliseconds = data[at : at + 8], data[at + 8 : at + ENTRY_BYTES]
    return int.from_bytes(end, "little"), int.from_bytes(milliseconds, "little")


def append_entries(log_path: str, log_limit: int, entries: Iterable[tuple[int, int]]) -> None:
    """Append entries, which must be in ascending order.

    If the file then exceeds its limit, drop every second entry.
    """
    path = times_path(log_path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, b"".join(encode_entry(end, moment) for end, moment in entries))
        size = os.fstat(fd).st_size
        if size % ENTRY_BYTES:  # the last entry is incomplete because the disk is full
            os.ftruncate(fd, size - size % ENTRY_BYTES)
    finally:
        os.close(fd)
    if size > max(log_limit // LIMIT_SHARE, LIMIT_MIN):
        _drop_every_second_entry(path)


def _drop_every_second_entry(path: str) -> None:
    """Drop every second entry except the last, which halves the precision of the times."""
    with open(path, "rb") as file:
        data = file.read()
    count = len(data) // ENTRY_BYTES
    draft = f"{path}.new"
    with open(draft, "wb") as file:
        starts = range((count - 1) % 2 * ENTRY_BYTES, count * ENTRY_BYTES, 2 * ENTRY_BYTES)
        file.writelines(data[start : start + ENTRY_BYTES] for start in starts)
    os.rename(draft, path)


class LogTimes:
    """Times of a log that another process writes. Call `record` regularly."""

    def __init__(self, log_path: str, log_limit: int) -> None:
        self._path, self._limit = log_path, log_limit
        self._end, self._checked = 0, time.time()
        self._append([])  # the empty file shows readers that times are recorded from the start

    def record(self, log: os.stat_result) -> None:
        now = time.time()
        if log.st_size > self._end:
            self._end = log.st_size
            # The program can set any modification time, so limit it to the time since the last check.
            written = min(max(log.st_mtime, self._checked), now)
            self._append([(self._end, int(written * 1000))])
        self._checked = now

    def _append(self, entries: list[tuple[int, int]]) -> None:
        try:
            append_entries(self._path, self._limit, entries)
        except OSError:  # a full disk, for example, must not end the pod
            pass
