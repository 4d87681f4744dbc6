"""Read any part of a log as if secrets had been masked in the entire log."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from berth.core.masking import MASK, Masker
from pools.runtimes.base import LogChunk

ReadLog = Callable[[int, int], LogChunk]


@dataclass(slots=True)
class MaskedReader:
    """Reader that masks secrets in a log.

    `load` returns the masker, and is called only after the pod has written output.
    """

    read_raw: ReadLog
    load: Callable[[], Masker]
    masker: Masker | None = None

    def read(self, offset: int, limit: int) -> tuple[LogChunk, int]:
        """Return a masked chunk, and the number of its last bytes that may be the beginning of a secret.

        The number is 0 unless the chunk ends at the end of the log.
        """
        overlap = self.masker.overlap_length if self.masker is not None and limit else 0
        chunk = self.read_raw(offset, limit + overlap)
        if not chunk.data:
            return chunk, 0
        if self.masker is None:
            self.masker = self.load()
            if self.masker.patterns:
                return self.read(offset, limit)
        if not self.masker.patterns:
            return chunk, 0
        chunk = self._extend_chunk(chunk, limit + overlap)
        before = self._read_bytes_before(chunk.offset, overlap)
        data = before + chunk.data
        masked = self.masker.mask(data)
        partial_match_length = (
            self.masker.partial_match_length(data) if len(chunk.data) < limit + overlap else 0
        )
        if chunk.next_offset < chunk.size:  # the gap that follows may contain the rest of a secret
            masked = masked[: len(data) - partial_match_length] + MASK * partial_match_length
            partial_match_length = 0
        length = min(limit, len(chunk.data))
        decided = max(len(chunk.data) - partial_match_length, 0)
        masked_chunk = replace(chunk, data=masked[len(before) :][:length], next_offset=chunk.offset + length)
        return masked_chunk, max(length - decided, 0)

    def _extend_chunk(self, chunk: LogChunk, count: int) -> LogChunk:
        """Return the chunk, extended to `count` bytes, but not beyond a gap in the log or the log's end."""
        while len(chunk.data) < count and chunk.next_offset < chunk.size:
            more = self.read_raw(chunk.next_offset, count - len(chunk.data))
            if not more.data or more.offset != chunk.next_offset:
                break
            data = chunk.data + more.data
            chunk = replace(chunk, data=data, next_offset=more.next_offset, size=more.size)
        return chunk

    def _read_bytes_before(self, offset: int, count: int) -> bytes:
        """Return up to `count` bytes of the log that end at the offset, but no bytes before a gap."""
        begin = at = max(offset - count, 0)
        data = b""
        while at < offset:
            chunk = self.read_raw(at, offset - at)
            if not chunk.data:
                return b""
            if chunk.offset != at:  # the read has skipped a gap in the log
                begin, data = chunk.offset, b""
            data += chunk.data
            at = chunk.next_offset
        return data[: max(offset - begin, 0)]
