"""Times of log lines, as a prefix of each line or as a separate list."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from pools.runtimes.base import LogChunk
from scheduler.api.logs.pod_log import PodLog

LINE = re.compile(rb"[^\n]*\n|[^\n]+")
# Placeholder for an unknown timestamp, padded so that all prefixes have the same length in bytes.
UNKNOWN = b"-".ljust(len("2026-01-01T00:00:00Z "))


class LineTimestamper:
    """Callable that prefixes each line of consecutive chunks with the line's UTC time."""

    def __init__(self, log: PodLog) -> None:
        self._log = log
        self._is_in_line: bool | None = None  # True if the next chunk continues a line; None before any chunk

    def __call__(self, chunk: LogChunk) -> bytes:
        if not chunk.data:
            return b""
        if self._is_in_line is None:
            self._is_in_line = not self._log.is_line_start(chunk.offset)
        stamp, last, parts = UNKNOWN, 0, []
        for line, moment in _lines_with_times(self._log, chunk):
            if moment != last:
                stamp, last = _format_timestamp(moment), moment
            parts.append(line if self._is_in_line else stamp + line)
            self._is_in_line = not line.endswith(b"\n")
        return b"".join(parts)


def line_times(log: PodLog, *chunks: LogChunk) -> list[tuple[int, int]]:
    """Return (index, time) for each line whose time differs from the previous line's.

    The chunks must be consecutive. Times are Unix times in milliseconds, or 0 if unknown.
    """
    changes: list[tuple[int, int]] = []
    index, is_in_line = -1, False
    for chunk in chunks:
        for line, moment in _lines_with_times(log, chunk):
            if not is_in_line:
                index += 1
                if not changes or changes[-1][1] != moment:
                    changes.append((index, moment))
            is_in_line = not line.endswith(b"\n")
    return changes


def times_at(log: PodLog, offsets: Sequence[int]) -> list[int]:
    """Return the times of the lines at the offsets, which must be in ascending order.

    Times are Unix times in milliseconds, or 0 if unknown.
    """
    parts = log.read_times(offsets[0], offsets[-1] + 1) if offsets else ()
    return [next((moment for end, moment in parts if end > offset), 0) for offset in offsets]


def _lines_with_times(log: PodLog, chunk: LogChunk) -> Iterator[tuple[bytes, int]]:
    """Yield each line or part of a line in the chunk, with the time of its first byte."""
    parts = iter(log.read_times(chunk.offset, chunk.next_offset) if chunk.data else ())
    end, moment = next(parts, (chunk.next_offset, 0))
    offset = chunk.offset
    for line in LINE.findall(chunk.data):
        while end <= offset:
            end, moment = next(parts, (chunk.next_offset, 0))
        yield line, moment
        offset += len(line)


def _format_timestamp(moment: int) -> bytes:
    if not moment:
        return UNKNOWN
    return datetime.fromtimestamp(moment // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ ").encode()
