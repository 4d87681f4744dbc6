"""Read and write small crash-safe records on disk.

A record has `key=value` pairs joined by NUL, which no argument, path or variable contains. The shim avoids
JSON, whose import takes as long as starting Python.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # avoids importing `typing` and `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

Record = list[tuple[str, str]]


def encode(record: Iterable[tuple[str, str]]) -> bytes:
    return b"\0".join(f"{key}={value}".encode("utf-8", "surrogateescape") for key, value in record)


def decode(data: bytes) -> Record:
    fields = data.decode("utf-8", "surrogateescape").split("\0") if data else []
    return [(key, value) for key, _, value in (field.partition("=") for field in fields)]


def read_fields(path: str) -> Record | None:
    try:
        with open(path, "rb") as file:
            return decode(file.read())
    except FileNotFoundError:
        return None


def read_record(path: str) -> dict[str, str] | None:
    """Return each key's last value, or None if the record does not exist."""
    fields = read_fields(path)
    return None if fields is None else dict(fields)


def write_record(path: str, record: Iterable[tuple[str, str]], durable: bool = True) -> None:
    """Write the record atomically. If `durable` is set, also sync it to disk."""
    draft = f"{path}.{os.getpid()}.new"
    with open(draft, "wb") as file:
        file.write(encode(record))
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(draft, path)
    if durable:
        sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    sync(path, os.O_DIRECTORY)


def sync(path: str, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
