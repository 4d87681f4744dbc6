"""Replace secret values in the output of programs."""

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

BYTES_MIN = 6  # shorter values and lines are not masked, because they would match ordinary text
PATTERN_BYTES_MAX = 1024  # longer lines are split into several patterns
PATTERNS_MAX = 1000  # the longest patterns are masked; the time per byte grows with their number
MASK = b"*"


@dataclass(frozen=True, slots=True)
class Masker:
    """Patterns to replace, longest first. None of them contains a line break."""

    patterns: tuple[bytes, ...] = ()

    @property
    def overlap(self) -> int:
        """Number of bytes before and after a part of a text that decide what is masked in this part."""
        return len(self.patterns[0]) - 1 if self.patterns else 0

    def mask(self, data: bytes) -> bytes:
        """Replace each byte of each pattern, so that the length and all line breaks stay the same."""
        masked: bytearray | None = None
        for pattern in self.patterns:
            for begin, end in _occurrences(pattern, data):
                masked = masked or bytearray(data)
                masked[begin:end] = MASK * (end - begin)
        return data if masked is None else bytes(masked)

    def undecided(self, data: bytes) -> int:
        """Return the length of the longest end of the data that may be the beginning of a pattern."""
        last_line = data[data.rfind(b"\n") + 1 :]
        end = last_line[max(len(last_line) - self.overlap, 0) :]
        longest = 0
        for pattern in self.patterns:
            at = end.find(pattern[:1], max(len(end) - len(pattern) + 1, 0))
            while 0 <= at < len(end) - longest:
                if pattern.startswith(end[at:]):
                    longest = len(end) - at
                at = end.find(pattern[:1], at + 1)
        return longest


def build_masker(values: Iterable[str]) -> Masker:
    """Return a masker for the values, their lines, and common encodings of the values."""
    patterns: set[bytes] = set()
    for value in values:
        for pattern in _patterns(value):
            patterns.update(_split(pattern))
    return Masker(tuple(sorted(patterns, key=lambda pattern: (-len(pattern), pattern))[:PATTERNS_MAX]))


def is_maskable(value: str) -> bool:
    """Return whether any line of the value is long enough to be masked."""
    return any(True for _ in _lines(value))


def _patterns(value: str) -> Iterable[bytes]:
    lines = list(_lines(value))
    yield from lines
    text = value.strip("\r\n")
    if not lines:
        return
    encoded = text.encode()
    for offset in range(3):
        for pattern in (base64.b64encode, base64.urlsafe_b64encode):
            yield _base64_part(pattern(bytes(offset) + encoded), offset, len(encoded))
    for other in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe="")):
        yield other.encode()


def _lines(value: str) -> Iterable[bytes]:
    stripped = (line.strip("\r").encode() for line in value.split("\n"))
    return (line for line in stripped if len(line) >= BYTES_MIN)


def _base64_part(text: bytes, offset: int, length: int) -> bytes:
    """Return the characters that depend only on the value, which begins `offset` bytes after the start."""
    return text[-(-offset * 8 // 6) : (offset + length) * 8 // 6]


def _occurrences(pattern: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each occurrence. Occurrences may overlap."""
    at = data.find(pattern)
    if at < 0:
        return
    period = next((n for n in range(1, len(pattern)) if pattern.startswith(pattern[n:])), len(pattern))
    while at >= 0:
        end, following = at + len(pattern), at + period
        if period <= len(pattern) // 2:  # treat a repetition as one occurrence, for the sake of time
            while end < len(data) and data[end] == data[end - period]:
                end += 1
            end -= (end - at - len(pattern)) % period
            following = end - len(pattern) + 1
        yield at, end
        at = data.find(pattern, following)


def _split(pattern: bytes) -> Iterable[bytes]:
    """Return parts of about equal length."""
    count = -(-len(pattern) // PATTERN_BYTES_MAX)
    size = -(-len(pattern) // count)
    return (pattern[start : start + size] for start in range(0, len(pattern), size))
