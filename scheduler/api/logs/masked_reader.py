"""Read any part of a log as if secrets had been masked in the whole log."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from berth.core.masking import Masker
from pools.runtimes.base import LogChunk

ReadLog = Callable[[int, int], LogChunk]


@dataclass(slots=True)
class MaskedReader:
    """Reader of a log. `load` returns the masker once the pod has written output.

    Secrets are recorded before a pod starts, so they are known as soon as there is any output.
    """

    read_raw: ReadLog
    load: Callable[[], Masker]
    masker: Masker | None = None

    def read(self, offset: int, limit: int) -> tuple[LogChunk, int]:
        """Return a masked chunk, and the number of bytes at its end that may be the beginning of a secret.

        This number is positive only at the end of the log.
        """
        overlap = self.masker.overlap if self.masker is not None and limit else 0
        chunk = self.read_raw(offset, limit + overlap)
        if not chunk.data:
            return chunk, 0
        if self.masker is None:
            self.masker = self.load()
            if self.masker.patterns:
                return self.read(offset, limit)
        if not self.masker.patterns:
            return chunk, 0
        chunk = self._extended(chunk, limit + overlap)
        before = self._bytes_before(chunk.offset, overlap)
        data = before + chunk.data
        is_end = chunk.next_offset >= chunk.size
        decided = len(chunk.data) - (self.masker.undecided(data) if is_end else 0)
        length = min(limit, len(chunk.data))
        masked = self.masker.mask(data)[len(before) :][:length]
        masked_chunk = replace(chunk, data=masked, next_offset=chunk.offset + length)
        return masked_chunk, max(length - max(decided, 0), 0)

    def _extended(self, chunk: LogChunk, count: int) -> LogChunk:
        """Add the bytes that follow, up to `count` in total. A gap ends the chunk."""
        while len(chunk.data) < count and chunk.next_offset < chunk.size:
            more = self.read_raw(chunk.next_offset, count - len(chunk.data))
            if not more.data or more.offset != chunk.next_offset:
                break
            data = chunk.data + more.data
            chunk = replace(chunk, data=data, next_offset=more.next_offset, size=more.size)
        return chunk

    def _bytes_before(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes before the offset, or fewer after a gap."""
        begin = max(offset - count, 0)
        chunk = self._extended(self.read_raw(begin, offset - begin), offset - begin)
        return chunk.data if chunk.next_offset == offset else b""
