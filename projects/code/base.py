"""Interface for storing chunks of code files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from berth.core.errors import Unavailable


@dataclass(frozen=True, slots=True)
class CodeFile:
    """File in a code tree, or a symbolic link if `link` is set.

    Each chunk except the last has CHUNK_BYTES bytes.
    """

    path: str
    size: int = 0
    chunks: tuple[str, ...] = ()
    executable: bool = False
    link: str = ""


class StoreFailure(Unavailable):
    """Raised if the store is unavailable, for example because its disk is full."""


class DamagedChunk(StoreFailure):
    """Raised if a chunk's content does not match its digest."""


class MissingChunk(StoreFailure):
    """Raised if a chunk is not in the store."""


class ChunkStore(Protocol):
    """Store of immutable chunks. Keys have the form PROJECT/NAME and are never reused."""

    def write(self, chunks: Mapping[str, bytes]) -> None:
        """Store the chunks durably, so that they survive a crash of the machine. Raises StoreFailure."""
        ...

    def read(self, key: str) -> bytes:
        """Return the content of a chunk. Raises MissingChunk or StoreFailure."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete chunks. Missing chunks are ignored. Raises StoreFailure."""
        ...

    def keys(self, *, before: datetime) -> Iterator[str]:
        """Yield the keys of all chunks written before the given time. Raises StoreFailure."""
        ...

    def delete_partial_writes(self, *, before: datetime) -> None:
        """Delete partial chunks left by writes that were interrupted before the given time."""
        ...
