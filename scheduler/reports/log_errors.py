"""Search a pod's log for lines that name an error."""

import re
import time
from collections.abc import Callable

from scheduler.reports.log_search import (
    CHUNK_SIZE,
    LOG_START,
    TIME_LIMIT,
    LinePosition,
    LogMatches,
    ReadChunk,
    line_with_context,
)
from scheduler.reports.log_text import render_as_terminal_line

# The page marks lines with this pattern, so it must have the same meaning in Python and in JavaScript.
ERROR_PATTERN = (
    r"\bTraceback \(most recent|\b(?:[A-Z]\w*)?(?:Error|Exception)\b(?::|$)|^\w*KeyboardInterrupt$"
    r"|\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|\b(?:error|fatal|panic): |\b[Oo]ut of memory\b|\bCUDA error\b"
    r"|\bNCCL (?:WARN|error)\b|\bKilled\b|\bSegmentation fault\b|\bBus error\b|\(core dumped\)"
    r"|: command not found|\bNo such file or directory\b|\bPermission denied\b"
)
_ERROR = re.compile(ERROR_PATTERN, re.ASCII)
_CANDIDATE = re.compile(  # cheap test of raw bytes, which may contain control sequences
    rb"[Ee]rror|ERROR|Traceback|Exception|KeyboardInterrupt|[Ff]atal|FATAL|CRITICAL|PANIC|panic|ut of memory"
    rb"|NCCL|Killed|fault|dumped|not found|No such file|denied"
)
_LINE_MAX = 64 * 1024  # maximum number of bytes searched per line
_TRACEBACK = "Traceback (most recent"
# maximum number of lines and bytes per traceback
_TRACEBACK_LINES, _TRACEBACK_SIZE = 200, 64 * 1024
_SCANNED_LINES = 100_000  # maximum number of lines read per chunk to find the ends of tracebacks


def search_errors(
    read: ReadChunk,
    *,
    start: LinePosition = LOG_START,
    max_matches: int,
    context_lines: int,
    seconds: float = TIME_LIMIT,
    clock: Callable[[], float] = time.monotonic,
) -> LogMatches:
    """Search a log for lines that contain an error, and return the same type of result as `search_log`.

    A traceback is represented only by its last line.
    """
    until, size = clock() + seconds, read(start.offset, 0).size
    line, offset, places, matches = start, start.offset, list[LinePosition](), 0
    resume_at: LinePosition | None = None
    carried = b""  # start of the current line, read from earlier chunks
    while offset < size:
        chunk = read(offset, min(CHUNK_SIZE, size - offset))
        if not chunk.data:
            break
        if chunk.offset != offset:  # bytes in between were deleted, so a new line begins
            line, carried = LinePosition(chunk.offset, line.line + 1), b""
        offset = chunk.next_offset
        data = carried + chunk.data
        begin = offset - len(data)
        end = len(data) if offset >= size else data.rfind(b"\n") + 1
        if not end and len(data) > CHUNK_SIZE:  # search a very long line in parts
            end = len(data)
        starts, end = _error_lines(data[:end], is_last=offset >= size, is_due=lambda: clock() >= until)
        for at in starts:
            matches += 1
            number = line.line + data.count(b"\n", line.offset - begin, at)
            line = LinePosition(begin + at, number)
            if len(places) < max_matches:
                places.append(line)
            elif resume_at is None:
                resume_at = line
        line = LinePosition(begin + end, line.line + data.count(b"\n", line.offset - begin, end))
        carried = data[end:]
        if clock() >= until:
            break
    return LogMatches(
        matches, tuple(line_with_context(read, place, context_lines) for place in places), size,
        min(line.offset, size), resume_at or (None if line.offset >= size else line),
    )  # fmt: skip


def _error_lines(data: bytes, *, is_last: bool, is_due: Callable[[], bool]) -> tuple[list[int], int]:
    """Return the offsets of lines that name an error, and the offset at which the search ended.

    An unfinished traceback is left for the next search.
    """
    starts, position, lines_left = list[int](), 0, _SCANNED_LINES
    while (candidate := _CANDIDATE.search(data, position)) is not None:
        start = data.rfind(b"\n", 0, candidate.start()) + 1
        end = data.find(b"\n", candidate.start())
        end = len(data) if end < 0 else end
        line = render_as_terminal_line(data[start : min(end, start + _LINE_MAX)])
        if _ERROR.search(line):
            prefix, traceback, _ = line.partition(_TRACEBACK)
            names_error: bool | None = False
            if traceback:
                names_error, scanned = _traceback_names_error(
                    data, end + 1, prefix, min(_TRACEBACK_LINES, lines_left)
                )
                lines_left -= scanned
            if names_error is None and not is_last and len(data) - start < _TRACEBACK_SIZE:
                return starts, start
            if not names_error:
                starts.append(start)
        position = end + 1
        if is_due():
            return starts, min(position, len(data))
    return starts, len(data)


def _traceback_names_error(
    data: bytes, position: int, prefix: str, max_lines: int
) -> tuple[bool | None, int]:
    """Return whether the traceback names an error, and the number of lines read.

    If the traceback has not ended, the first value is None.
    """
    for count in range(max_lines):
        if position >= len(data):
            return None, count
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        line = render_as_terminal_line(data[position : min(end, position + _LINE_MAX)])
        rest = line[len(prefix) :] if line.startswith(prefix) else ""
        if rest and not rest[0].isspace():
            return _TRACEBACK not in rest and _ERROR.search(line) is not None, count + 1
        position = end + 1
    return False, max_lines
