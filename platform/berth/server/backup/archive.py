"""Tar archive of a backup: manifest, database dump and optional keys."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from berth.server.backup.errors import BackupError
from berth.server.backup.manifest import Manifest, parse_manifest

MANIFEST, DUMP, KEYS = "manifest.json", "database.dump", "keys/"
BLOCK = 1 << 20
MANIFEST_SIZE_MAX = 1 << 20


def write_archive(target: Path, manifest: Manifest, dump: Path, keys: Mapping[str, bytes]) -> None:
    """Write a backup file atomically, readable only by its owner. Raises BackupError if that fails."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                _add_to_archive(tar, MANIFEST, manifest.text())
                for name, content in keys.items():
                    _add_to_archive(tar, KEYS + name, content)
                tar.add(dump, DUMP, filter=_anonymize)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def open_archive(source: Path) -> Iterator["Archive"]:
    """Open a backup and verify its checksum. Raises BackupError."""
    try:
        with source.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            archive = Archive(source, tar)
            archive.check()
            yield archive
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror or error}") from None
    except tarfile.TarError:
        raise BackupError(f"{source} is not a Berth backup, or is truncated. Use another file.") from None


class Archive:
    def __init__(self, source: Path, tar: tarfile.TarFile) -> None:
        self._source, self._tar = source, tar
        self.manifest = parse_manifest(self._open_member(MANIFEST).read(MANIFEST_SIZE_MAX), str(source))

    def dump(self) -> IO[bytes]:
        return self._open_member(DUMP)

    def keys(self) -> dict[str, bytes]:
        return {name: self._open_member(KEYS + name).read(BLOCK) for name in self.manifest.files}

    def check(self) -> None:
        size, sha256 = size_and_digest(self.dump())
        if (size, sha256) != (self.manifest.size, self.manifest.sha256):
            raise BackupError(f"{self._source} is damaged: the checksum does not match. Use another backup.")

    def _open_member(self, name: str) -> IO[bytes]:
        try:
            part = self._tar.extractfile(name)
        except KeyError:
            part = None
        if part is None:
            raise BackupError(f"{self._source} is not a Berth backup: {name} is missing. Use another file.")
        return part


def size_and_digest(content: IO[bytes]) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while block := content.read(BLOCK):
        size += len(block)
        digest.update(block)
    return size, digest.hexdigest()


def _add_to_archive(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    tar.addfile(entry, io.BytesIO(content))


def _anonymize(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o600
    return entry
