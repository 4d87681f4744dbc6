"""Search the log of a pod in chunks, in bounded memory."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pools.runtimes.base import LogChunk

PIECE = 4 * 1024 * 1024
SECONDS = 8.0  # time limit per search; the client continues at the returned place
TEXT_MAX = 200
LINE_MAX = 4096  # bytes shown per line
AROUND_MAX = 20
NEAR = 64 * 1024  # bytes before and after a match that are searched for context lines
Read = Callable[[int, int], LogChunk]


@dataclass(frozen=True, slots=True)
class Place:
    """Start of a line: its byte offset, and its number among the stored lines, from 1."""

    offset: int
    line: int


BEGIN = Place(0, 1)


@dataclass(frozen=True, slots=True)
class Line:
    at: Place
    text: bytes
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class LogMatches:
    """Result of a search.

    `matches` counts all matching lines up to `searched_bytes`; `lines` holds the first of them. `following`
    is the place to continue: after the last of `lines` if there are more, else where time ran out.
    """

    matches: int
    lines: tuple[Line, ...]
    size: int
    searched_bytes: int
    following: Place | None

    @property
    def whole(self) -> bool:
        """True if the search reached the end of the log."""
        return self.searched_bytes >= self.size


class _Search:
    """One pass over the chunks. A line counts once, even if it is not complete."""

    def __init__(self, wanted: bytes, ignore_case: bool, start: Place, most: int) -> None:
        self._wanted, self._fold = wanted.lower() if ignore_case else wanted, ignore_case
        self._most = most
        self._line = start  # current line
        self._hit = False  # True if the current line has matched
        self._rest = b""  # last bytes of the current line, in which a match may begin
        self._next = start.offset
        self.matches = 0
        self.places: list[Place] = []
        self.beyond: Place | None = None

    @property
    def reached(self) -> Place:
        """Start of the current line, which may be incomplete."""
        return self._line

    def take(self, chunk: LogChunk) -> None:
        if chunk.offset != self._next:  # the bytes in between were deleted: a line ends there
            self._line, self._hit, self._rest = Place(chunk.offset, self._line.line + 1), False, b""
        self._next = chunk.next_offset
        begin = chunk.offset - len(self._rest)  # offset of `data` in the log
        data = self._rest + chunk.data
        looked = data.lower() if self._fold else data
        position = 0
        while True:
            hit_at = -1 if self._hit else looked.find(self._wanted, position)
            if hit_at < 0 and not self._hit:
                break
            if hit_at >= 0:
                self._pass_lines(data, begin, position, hit_at)
                self._count()
                position = hit_at
            end = data.find(b"\n", position)
            if end < 0:
                self._rest = b""
                return
            self._line, self._hit = Place(begin + end + 1, self._line.line + 1), False
            position = end + 1
        self._pass_lines(data, begin, position, len(data))
        self._rest = data[max(position, len(data) - len(self._wanted) + 1) :]
        cut = self._rest.rfind(b"\n")  # a match lies within one line
        self._rest = self._rest[cut + 1 :]

    def _pass_lines(self, data: bytes, begin: int, start: int, end: int) -> None:
        last = data.rfind(b"\n", start, end)
        if last >= 0:
            count = data.count(b"\n", start, last + 1)
            self._line = Place(begin + last + 1, self._line.line + count)

    def _count(self) -> None:
        self._hit = True
        self.matches += 1
        if len(self.places) < self._most:
            self.places.append(self._line)
        elif self.beyond is None:
            self.beyond = self._line


def search(
    read: Read, text: str, *, start: Place = BEGIN, most: int = 50, around: int = 0,
    ignore_case: bool = False, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic,
) -> LogMatches:  # fmt: skip
    """Search a log for a text. `ignore_case` applies to the letters A to Z only."""
    searching = _Search(text.encode(), ignore_case, start, most)
    until, offset = clock() + seconds, start.offset
    size = read(offset, 0).size
    while offset < size:
        chunk = read(offset, min(PIECE, size - offset))
        if not chunk.data:
            break
        searching.take(chunk)
        offset = chunk.next_offset
        if clock() >= until:
            break
    else:
        offset = max(offset, size)
    whole = offset >= size
    lines = tuple(_line_with_context(read, place, around) for place in searching.places)
    return LogMatches(
        searching.matches, lines, size, offset,
        searching.beyond or (None if whole else searching.reached),
    )  # fmt: skip


def _line_with_context(read: Read, place: Place, around: int) -> Line:
    begin = max(0, place.offset - (NEAR if around else 0))
    before: deque[bytes] = deque(maxlen=around)
    if around and place.offset:
        chunk = read(begin, place.offset - begin)
        lines = chunk.data.split(b"\n")[:-1]
        whole = lines if chunk.offset == 0 or len(lines) <= 1 else lines[1:]
        before.extend(line[-LINE_MAX:] for line in whole)
    data = read(place.offset, NEAR).data if around else read(place.offset, LINE_MAX).data
    own, *rest = data.split(b"\n")
    if rest and not rest[-1]:
        rest.pop()
    return Line(place, own[:LINE_MAX], tuple(before), tuple(line[:LINE_MAX] for line in rest[:around]))
