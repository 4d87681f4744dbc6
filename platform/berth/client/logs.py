"""Chunks of pod logs, which the server sends as bytes instead of JSON."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Part of a pod's log. If `complete` is True, nothing will follow `next_offset`."""

    data: bytes
    next_offset: int
    complete: bool
