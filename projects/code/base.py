"""Files of code, and the interface of a store for their chunks."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from berth.core.errors import Unavailable


@dataclass(frozen=True, slots=True)
class CodeFile:
    """File of a tree, or a symbolic link if `link` is set. All chunks but the last have CHUNK_BYTES."""

    path: str
    size: int = 0
    chunks: tuple[str, ...] = ()
    executable: bool = False
    link: str = ""


class StoreFailure(Unavailable):
    """Raised if the store cannot be used now, for example because its disk is full."""


class DamagedChunk(StoreFailure):
    """Raised if the content of a chunk has changed."""


class MissingChunk(StoreFailure):
    """Raised if a chunk is not in the store."""


class ChunkStore(Protocol):
    """Store of immutable chunks. Keys have the form PROJECT/NAME and are never reused."""

    def write(self, chunks: Mapping[str, bytes]) -> None:
        """Store the chunks.

        Once this call has returned, the chunks survive a crash of the machine. Raises StoreFailure.
        """
        ...

    def read(self, key: str) -> bytes:
        """Return the content of a chunk. Raises MissingChunk or StoreFailure."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete chunks. Missing chunks are ignored. Raises StoreFailure."""
        ...

    def keys(self, *, before: datetime) -> Iterator[str]:
        """Yield the keys of all chunks written before this time. Raises StoreFailure."""
        ...

    def delete_partial_writes(self, *, before: datetime) -> None:
        """Delete the remains of writes that were interrupted before this time."""
        ...
