"""Read chunks of a pod's log by byte offset while the log grows. Move and delete logs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pools.runtimes.base import LogChunk
from pools.runtimes.shim.logs.podlog import read_gap

SIDE_FILES = (".gap", ".times")
_BLOCK = 65536
TAIL_MAX = 4 * 1024 * 1024


def read_log(path: Path, offset: int, limit: int, ended: bool) -> LogChunk:
    """Return up to `limit` bytes of the log from `offset`.

    If `offset` is in a gap, start at the end of the gap. `ended` says whether the pod had ended before the
    call; a later check could miss the last bytes.
    """
    offset, limit = max(offset, 0), max(limit, 0)
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return LogChunk(b"", 0, 0, 0, ended)
    try:
        while True:
            gap = read_gap(str(path))
            begin, count = _skip_gap(gap, offset, limit)
            data = os.pread(fd, count, begin)
            size = os.fstat(fd).st_size
            # If the gap has changed, a hole was punched during the read, so read again.
            if read_gap(str(path)) == gap:
                break
    finally:
        os.close(fd)
    begin = min(begin, size)
    end = begin + len(data)
    return LogChunk(data, begin, end, size, ended and end >= size)


def _skip_gap(gap: tuple[int, int], offset: int, limit: int) -> tuple[int, int]:
    start, end = gap
    if start <= offset < end:
        return end, limit
    if offset < start:
        return offset, min(limit, start - offset)
    return offset, limit


def tail_log(path: Path, lines: int, ended: bool) -> LogChunk:
    """Return the last `lines` lines of the log, but at most `TAIL_MAX` bytes and nothing before a gap."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return LogChunk(b"", 0, 0, 0, ended)
    oldest = max(read_gap(str(path))[1], size - TAIL_MAX)
    begin, data = size, b""
    while begin > oldest and data.count(b"\n") <= lines:
        step = min(_BLOCK, begin - oldest)
        chunk = read_log(path, begin - step, step, ended)
        if chunk.offset != begin - step:
            break
        begin, data = begin - step, chunk.data + data
    cut = last_lines_offset(data, lines)
    return LogChunk(data[cut:], begin + cut, size, size, ended)


def last_lines_offset(data: bytes, lines: int) -> int:
    if lines <= 0:
        return len(data)
    position = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1


def move_log(source: Path, target: Path) -> None:
    """Move the files that describe a log, and then the log itself."""
    for suffix in SIDE_FILES:
        with suppress(FileNotFoundError):
            Path(f"{source}{suffix}").rename(f"{target}{suffix}")
    source.rename(target)


def delete_log(path: Path) -> None:
    for suffix in (*SIDE_FILES, ""):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
