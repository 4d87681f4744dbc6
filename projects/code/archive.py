"""Build tar archives from stored code."""

import hashlib
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from projects.code.base import ChunkStore, DamagedChunk, MissingChunk

READ_AHEAD = 8  # chunks
CONTENT_TYPE = "application/x-tar"


def tar_parts(
    store: ChunkStore, files: Sequence[dict[str, Any]], keys: dict[str, str], mtime: int
) -> Iterator[bytes]:
    """Return an iterator over the parts of a tar archive of the files.

    `keys` maps chunk digests to keys in the store. Iterating raises StoreFailure for an unreadable or damaged
    chunk.
    """
    contents = _read_ahead(store, [digest for file in files for digest in file.get("chunks", ())], keys)
    return archive_parts(files, mtime, (islice(contents, len(file.get("chunks", ()))) for file in files))


def archive_parts(
    files: Iterable[dict[str, Any]], mtime: int, contents: Iterable[Iterable[bytes]]
) -> Iterator[bytes]:
    """Yield the parts of a tar archive of the files."""
    for file, content in zip(files, contents, strict=True):
        yield _header(file, mtime)
        yield from content
        if padding := -file.get("size", 0) % tarfile.BLOCKSIZE:
            yield bytes(padding)
    yield bytes(2 * tarfile.BLOCKSIZE)


def check_chunks(store: ChunkStore, files: Sequence[dict[str, Any]], keys: dict[str, str]) -> None:
    """Check that all chunks of the files can be read.

    Raises StoreFailure if a chunk is damaged or cannot be read.
    """
    digests = dict.fromkeys(digest for file in files for digest in file.get("chunks", ()))
    for _ in _read_ahead(store, list(digests), keys):
        pass


def file_parts(store: ChunkStore, file: Mapping[str, Any], keys: dict[str, str]) -> Iterator[bytes]:
    """Yield the content of one file in parts. Raises StoreFailure if a chunk is damaged or cannot be read."""
    return _read_ahead(store, file.get("chunks", ()), keys)


def archive_size(files: Sequence[dict[str, Any]], mtime: int) -> int:
    """Return the size of the tar archive in bytes."""
    sizes = (file.get("size", 0) for file in files)
    contents = sum(size + -size % tarfile.BLOCKSIZE for size in sizes)
    return sum(len(_header(file, mtime)) for file in files) + contents + 2 * tarfile.BLOCKSIZE


def _header(file: dict[str, Any], mtime: int) -> bytes:
    entry = tarfile.TarInfo(file["path"])
    entry.mtime = mtime
    entry.mode = 0o755 if file.get("executable") else 0o644
    if link := file.get("link"):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, link, 0o777
    entry.size = file.get("size", 0)
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8")  # BusyBox ignores the long names of the PAX format


def _read_ahead(store: ChunkStore, digests: Sequence[str], keys: dict[str, str]) -> Iterator[bytes]:
    """Yield the chunks' contents in order. A few are read concurrently to hide the latency of S3."""

    def read(digest: str) -> bytes:
        if digest not in keys:
            raise MissingChunk(f"Chunk {digest} of the code is no longer stored. Resubmit the workload.")
        content = store.read(keys[digest])
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedChunk(f"Stored chunk {digest} is damaged. Contact an admin.")
        return content

    remaining = iter(digests)
    with ThreadPoolExecutor(READ_AHEAD) as threads:
        while batch := list(islice(remaining, READ_AHEAD)):
            yield from threads.map(read, batch)
