"""Replace secret values in program output."""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from urllib.parse import quote

BYTES_MIN = 6  # shorter values and lines are not masked, because they would match ordinary text
PATTERN_BYTES_MAX = 1024  # longer lines are split into several patterns
PATTERNS_MAX = 1000  # limited, because masking becomes slower with more patterns
MASK = b"*"


@dataclass(frozen=True, slots=True)
class Masker:
    """Secret values to mask in program output, as sorted patterns without line breaks."""

    patterns: tuple[bytes, ...] = ()
    is_partial: bool = False  # True if the values have more than PATTERNS_MAX patterns

    @property
    def overlap_length(self) -> int:
        """Number of bytes before and after a chunk that can affect how the chunk is masked."""
        return max(map(len, self.patterns), default=1) - 1

    def mask(self, data: bytes) -> bytes:
        """Mask each byte of each occurrence of a pattern. The length and all line breaks stay the same."""
        masked: bytearray | None = None
        for pattern in self.patterns:
            for begin, end in _occurrences(pattern, data):
                masked = masked or bytearray(data)
                masked[begin:end] = MASK * (end - begin)
        return data if masked is None else bytes(masked)

    def partial_match_length(self, data: bytes) -> int:
        """Return the length of the data's longest suffix that could be the start of a pattern."""
        last_line = data[data.rfind(b"\n") + 1 :]
        for length in range(min(self.overlap_length, len(last_line)), 0, -1):
            end = last_line[-length:]
            # In sorted order, longer patterns that begin with `end` directly follow it.
            following = bisect_right(self.patterns, end)
            if following < len(self.patterns) and self.patterns[following].startswith(end):
                return length
        return 0


def build_masker(values: Iterable[str]) -> Masker:
    """Return a masker for the values, their lines and their encodings.

    The masker has at most PATTERNS_MAX patterns, taken from all values in turn.
    """
    patterns: dict[bytes, None] = {}
    for turn in zip_longest(*map(_patterns, values)):
        for pattern in turn:
            if pattern is None or pattern in patterns:
                continue
            if len(patterns) == PATTERNS_MAX:
                return Masker(_drop_covered_patterns(patterns), is_partial=True)
            patterns[pattern] = None
    return Masker(_drop_covered_patterns(patterns))


def is_maskable(value: str) -> bool:
    """Return whether any line of the value is long enough to be masked."""
    return any(True for _ in _maskable_lines(value))


def _patterns(value: str) -> Iterator[bytes]:
    """Yield the patterns to mask: the lines of the value and its encodings."""
    lines = dict.fromkeys(_maskable_lines(value))
    for line in lines:
        yield from _split_pattern(line)
    if lines:
        for encoding in _encodings(value.strip("\r\n")):
            yield from _split_pattern(encoding)


def _encodings(text: str) -> Iterator[bytes]:
    encoded = text.encode()
    for offset in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield _base64_part(encode(bytes(offset) + encoded), offset, len(encoded))
    for other in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text, safe="")):
        yield other.encode()


def _maskable_lines(value: str) -> Iterable[bytes]:
    stripped = (line.strip("\r").encode() for line in value.split("\n"))
    return (line for line in stripped if len(line) >= BYTES_MIN)


def _base64_part(text: bytes, offset: int, length: int) -> bytes:
    """Return the part of a Base64 text that depends only on the value.

    `offset` and `length` locate the value in the decoded bytes.
    """
    return text[-(-offset * 8 // 6) : (offset + length) * 8 // 6]


def _drop_covered_patterns(patterns: Iterable[bytes]) -> tuple[bytes, ...]:
    """Drop patterns that shorter patterns mask completely."""
    ordered = sorted(patterns, key=len)
    text = b"\n".join(ordered)
    masked, needed, begin = bytearray(text), [], 0
    for pattern in ordered:
        end = begin + len(pattern)
        if masked[begin:end] != MASK * len(pattern):
            needed.append(pattern)
            for covered_begin, covered_end in _occurrences(pattern, text, end):
                masked[covered_begin:covered_end] = MASK * (covered_end - covered_begin)
        begin = end + 1
    return tuple(sorted(needed))


def _occurrences(pattern: bytes, data: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each occurrence. Overlapping or adjacent occurrences may be joined."""
    at = data.find(pattern, start)
    if at < 0:
        return
    period = next((n for n in range(1, len(pattern)) if pattern.startswith(pattern[n:])), len(pattern))
    following = pattern[-period:]  # bytes that complete a second, overlapping occurrence
    while at >= 0:
        end = at + len(pattern)
        if data.startswith(following, end):
            repeated = re.compile(b"(?:%b)*+" % re.escape(following)).match(data, end)
            end = repeated.end() if repeated else end
        yield at, end
        at = data.find(pattern, end - len(pattern) + period)


def _split_pattern(pattern: bytes) -> Iterable[bytes]:
    count = -(-len(pattern) // PATTERN_BYTES_MAX)
    size = -(-len(pattern) // count)
    return (pattern[start : start + size] for start in range(0, len(pattern), size))
