"""Search a pod's log chunk by chunk, with bounded memory."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from pools.runtimes.base import LogChunk

CHUNK_SIZE = 4 * 1024 * 1024
TIME_LIMIT = 8.0  # maximum duration of a search in seconds; the client can resume at the returned position
MAX_TEXT_LENGTH = 200
MAX_LINE_BYTES = 4096  # maximum number of bytes shown per line
MAX_CONTEXT_LINES = 20
CONTEXT_BYTES = 64 * 1024  # number of bytes read before and after a match to find its context lines
ReadChunk = Callable[[int, int], LogChunk]


@dataclass(frozen=True, slots=True)
class LinePosition:
    """Start of a line: its byte offset, and its line number in the stored log, starting at 1."""

    offset: int
    line: int


LOG_START = LinePosition(0, 1)


@dataclass(frozen=True, slots=True)
class MatchingLine:
    """Line that matches a search, with lines of context.

    `offsets` contains the byte offset of every line, including the context.
    """

    at: LinePosition
    text: bytes
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LogMatches:
    """Result of a log search.

    `matches` is the number of matching lines up to `searched_bytes`, and `lines` contains the first of them.
    `resume_at` is the position from which to continue the search, or None if it is complete.
    """

    matches: int
    lines: tuple[MatchingLine, ...]
    size: int
    searched_bytes: int
    resume_at: LinePosition | None

    @property
    def is_complete(self) -> bool:
        """Whether the search reached the end of the log."""
        return self.searched_bytes >= self.size


class _LogSearch:
    """Log search in a single pass over the chunks.

    Each matching line is counted once, even if it spans several chunks.
    """

    def __init__(self, needle: bytes, ignore_case: bool, start: LinePosition, max_matches: int) -> None:
        self._needle, self._ignore_case = needle.lower() if ignore_case else needle, ignore_case
        self._max_matches = max_matches
        self._line = start  # position at which the current line begins
        self._has_matched = False  # True if a match has already been found in the current line
        self._tail = b""  # last part of the current line, where a match may begin
        self._next = start.offset
        self.matches = 0
        self.places: list[LinePosition] = []
        self.next_match: LinePosition | None = None

    @property
    def current_line(self) -> LinePosition:
        """Start of the current line, which may be incomplete."""
        return self._line

    def process_chunk(self, chunk: LogChunk) -> None:
        if chunk.offset != self._next:  # bytes in between were deleted, so a new line begins
            self._line, self._has_matched, self._tail = (
                LinePosition(chunk.offset, self._line.line + 1),
                False,
                b"",
            )
        self._next = chunk.next_offset
        begin = chunk.offset - len(self._tail)  # offset in the log at which `data` begins
        data = self._tail + chunk.data
        haystack = data.lower() if self._ignore_case else data
        position = 0
        while True:
            hit_at = -1 if self._has_matched else haystack.find(self._needle, position)
            if hit_at < 0 and not self._has_matched:
                break
            if hit_at >= 0:
                self._skip_lines(data, begin, position, hit_at)
                self._record_match()
                position = hit_at
            end = data.find(b"\n", position)
            if end < 0:
                self._tail = b""
                return
            self._line, self._has_matched = LinePosition(begin + end + 1, self._line.line + 1), False
            position = end + 1
        self._skip_lines(data, begin, position, len(data))
        self._tail = data[max(position, len(data) - len(self._needle) + 1) :]
        cut = self._tail.rfind(b"\n")  # a match never spans two lines
        self._tail = self._tail[cut + 1 :]

    def _skip_lines(self, data: bytes, begin: int, start: int, end: int) -> None:
        last = data.rfind(b"\n", start, end)
        if last >= 0:
            count = data.count(b"\n", start, last + 1)
            self._line = LinePosition(begin + last + 1, self._line.line + count)

    def _record_match(self) -> None:
        self._has_matched = True
        self.matches += 1
        if len(self.places) < self._max_matches:
            self.places.append(self._line)
        elif self.next_match is None:
            self.next_match = self._line


def search_log(
    read: ReadChunk,
    text: str,
    *,
    start: LinePosition = LOG_START,
    max_matches: int = 50,
    context_lines: int = 0,
    ignore_case: bool = False,
    seconds: float = TIME_LIMIT,
    clock: Callable[[], float] = time.monotonic,
) -> LogMatches:
    """Search a log for literal text. `ignore_case` applies only to ASCII letters."""
    log_search = _LogSearch(text.encode(), ignore_case, start, max_matches)
    until, offset = clock() + seconds, start.offset
    size = read(offset, 0).size
    while offset < size:
        chunk = read(offset, min(CHUNK_SIZE, size - offset))
        if not chunk.data:
            break
        log_search.process_chunk(chunk)
        offset = chunk.next_offset
        if clock() >= until:
            break
    else:
        offset = max(offset, size)
    whole = offset >= size
    lines = tuple(line_with_context(read, place, context_lines) for place in log_search.places)
    return LogMatches(
        log_search.matches, lines, size, offset,
        log_search.next_match or (None if whole else log_search.current_line),
    )  # fmt: skip


def line_with_context(read: ReadChunk, place: LinePosition, context_lines: int) -> MatchingLine:
    begin = max(0, place.offset - (CONTEXT_BYTES if context_lines else 0))
    before: deque[tuple[int, bytes]] = deque(maxlen=context_lines)
    if context_lines and place.offset:
        chunk = read(begin, place.offset - begin)
        lines = _lines_with_offsets(chunk)[:-1]
        before.extend(lines if chunk.offset == 0 or len(lines) <= 1 else lines[1:])
    own, *rest = _lines_with_offsets(read(place.offset, CONTEXT_BYTES if context_lines else MAX_LINE_BYTES))
    if rest and not rest[-1][1]:
        rest.pop()
    after = rest[:context_lines]
    return MatchingLine(
        place,
        own[1][:MAX_LINE_BYTES],
        tuple(line[-MAX_LINE_BYTES:] for _, line in before),
        tuple(line[:MAX_LINE_BYTES] for _, line in after),
        tuple(offset for offset, _ in (*before, own, *after)),
    )


def _lines_with_offsets(chunk: LogChunk) -> list[tuple[int, bytes]]:
    lines = chunk.data.split(b"\n")
    starts = accumulate((len(line) + 1 for line in lines[:-1]), initial=chunk.offset)
    return list(zip(starts, lines, strict=True))
