"""Read the times when a pod wrote the parts of its log. See `pools.runtimes.shim.logs.logtimes`."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from pools.runtimes.base import LogTime
from pools.runtimes.shim.logs.logtimes import (
    ENTRY_BYTES,
    append_entries,
    decode_entry,
    encode_entry,
    times_path,
)

_BATCH = 1024


def read_times(log_path: Path, start: int, end: int, *, grows: bool = False) -> list[LogTime]:
    """Return the known times of the bytes from `start` to `end`.

    If `grows` is set, bytes after the last entry get the log's modification time.
    """
    times: list[LogTime] = []
    try:
        fd = os.open(times_path(str(log_path)), os.O_RDONLY)
    except FileNotFoundError:
        return times
    try:
        count = os.fstat(fd).st_size // ENTRY_BYTES
        index = _first_index_after(fd, start, count)
        while index < count and (not times or times[-1][0] < end):
            data = os.pread(fd, _BATCH * ENTRY_BYTES, index * ENTRY_BYTES)
            batch = len(data) // ENTRY_BYTES
            if not batch:
                break
            for each in range(batch):
                times.append(decode_entry(data, each))
                if times[-1][0] >= end:
                    break
            index += batch
    finally:
        os.close(fd)
    if grows and (not times or times[-1][0] < end):
        info = log_path.stat()
        if info.st_size > (times[-1][0] if times else start):
            times.append((info.st_size, int(info.st_mtime * 1000)))
    return times


def store_times(log_path: Path, times: Sequence[LogTime]) -> None:
    """Store the times of a log that will not grow."""
    path = Path(times_path(str(log_path)))
    draft = path.with_name(f".{path.name}.{threading.get_ident()}")
    draft.write_bytes(b"".join(encode_entry(end, moment) for end, moment in times))
    draft.rename(path)


def extend_times(log_path: Path, log_limit: int, start: int, times: Sequence[LogTime]) -> None:
    """Record the times of bytes that are appended to a log at offset `start`.

    Earlier bytes without an entry have an unknown time. Entries after `start` are replaced.
    """
    path = times_path(str(log_path))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        count = os.fstat(fd).st_size // ENTRY_BYTES
        keep = _first_index_after(fd, start, count)
        os.ftruncate(fd, keep * ENTRY_BYTES)
        last = _read_entry(fd, keep - 1)[0] if keep else 0
    finally:
        os.close(fd)
    unknown = [(start, 0)] if last < start else []
    append_entries(str(log_path), log_limit, [*unknown, *times])


def _first_index_after(fd: int, offset: int, count: int) -> int:
    """Return the index of the first entry that ends after the offset, or `count`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _read_entry(fd, middle)[0] > offset:
            high = middle
        else:
            low = middle + 1
    return low


def _read_entry(fd: int, index: int) -> LogTime:
    return decode_entry(os.pread(fd, ENTRY_BYTES, index * ENTRY_BYTES))
