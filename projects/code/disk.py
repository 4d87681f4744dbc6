"""Store chunks of code in a directory."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from projects.code.base import MissingChunk, StoreFailure

DRAFT = ".new"  # suffix of files that are being written


class DiskStore:
    """Chunk store in a directory.

    A file gets its final name only after its content has been synced to disk.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, chunks: Mapping[str, bytes]) -> None:
        with _translate_errors("written"):
            directories = set()
            for key, content in chunks.items():
                path = self._root / key
                self._make_directory(path.parent)
                draft = path.with_name(path.name + DRAFT)
                try:
                    with os.fdopen(_create(draft), "wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                except OSError:
                    draft.unlink(missing_ok=True)
                    raise
                draft.rename(path)
                directories.add(path.parent)
            for directory in directories:
                _sync(directory)

    def read(self, key: str) -> bytes:
        with _translate_errors("read"):
            try:
                return (self._root / key).read_bytes()
            except FileNotFoundError:
                raise MissingChunk(f"The code store has no chunk {key}.") from None

    def delete(self, keys: Iterable[str]) -> None:
        with _translate_errors("deleted"):
            for key in keys:
                (self._root / key).unlink(missing_ok=True)

    def keys(self, *, before: datetime) -> Iterator[str]:
        with _translate_errors("listed"):
            for path in self._files_older_than(before):
                if not path.name.endswith(DRAFT):
                    yield str(path.relative_to(self._root))

    def delete_partial_writes(self, *, before: datetime) -> None:
        with _translate_errors("deleted"):
            for path in self._files_older_than(before):
                if path.name.endswith(DRAFT):
                    path.unlink(missing_ok=True)

    def _files_older_than(self, before: datetime) -> Iterator[Path]:
        for path in self._root.glob("*/*"):
            try:
                modified = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
            except FileNotFoundError:  # another process has just deleted the file
                continue
            if modified < before:
                yield path

    def _make_directory(self, directory: Path) -> None:
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(directory.parent)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _translate_errors(done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"Code cannot be {done} on the server's disk: {error.strerror}."
        raise StoreFailure(f"{message} Contact an admin, then try again.") from error
