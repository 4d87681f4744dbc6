"""Pack a file or a directory into a tar archive."""

from __future__ import annotations

import os
import stat
import tarfile

from pools.runtimes.shim.channels.archive import (
    BLOCK,
    CONTENTS,
    NANOSECONDS,
    RECORD,
    CopyError,
    base_name,
    describe,
    stays_inside,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    _Levels = list[tuple[str, Any]]  # name and open iterator of each directory level

END_OF_ARCHIVE = bytes(2 * RECORD)


class Packer:
    """Packer for one file or directory. Files are read while the caller iterates.

    Unreadable files, special files and links that point outside the directory are reported to `skip`. Other
    errors raise CopyError.
    """

    def __init__(self, source: str, skip: Callable[[str], None]) -> None:
        self._source, self._skip = source or CONTENTS, skip
        self.files = self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        source, name = self._source, base_name(self._source)
        try:
            mode = os.stat(source).st_mode
            if stat.S_ISDIR(mode):
                yield from self._pack_tree(source, name)
            elif stat.S_ISREG(mode):
                yield from self._pack_file(source, name, 0)
            else:
                raise CopyError(f"{source} is neither a file nor a directory")
        except OSError as error:
            raise CopyError(describe(source, error)) from None
        yield END_OF_ARCHIVE

    def _pack_tree(self, source: str, name: str) -> Iterator[bytes]:
        """Yield a directory tree's archive. Each directory precedes its entries."""
        levels = [(name, os.scandir(source))]
        try:
            yield _header(name, os.stat(source), tarfile.DIRTYPE)
            while levels:
                above, entries = levels[-1]
                entry = next(entries, None)
                if entry is None:
                    levels.pop()
                    continue
                try:
                    yield from self._pack_entry(levels, entry, f"{above}/{entry.name}")
                except OSError as error:
                    self._skip(describe(entry.path, error))
        finally:
            for _, entries in levels:
                entries.close()

    def _pack_entry(self, levels: _Levels, entry: os.DirEntry[str], member: str) -> Iterator[bytes]:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            levels.append((member, os.scandir(entry.path)))
            yield _header(member, status, tarfile.DIRTYPE)
        elif stat.S_ISREG(status.st_mode):
            yield from self._pack_file(entry.path, member, os.O_NOFOLLOW)
        elif stat.S_ISLNK(status.st_mode):
            link = os.readlink(entry.path)
            if stays_inside(link, len(levels) - 1):
                yield _header(member, status, tarfile.SYMTYPE, link=link)
            else:
                self._skip(f"{entry.path} is a link to {link}, outside the copied directory")
        else:
            self._skip(f"{entry.path} is neither a file nor a directory")

    def _pack_file(self, path: str, member: str, flags: int) -> Iterator[bytes]:
        """Yield a file's header and content. Raises OSError before the header, and CopyError afterwards."""
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "The file was replaced during the copy")
            yield _header(member, status, tarfile.REGTYPE, status.st_size)
            left = status.st_size
            while left:
                data = _read_block(fd, left, path)
                left -= len(data)
                self.size += len(data)
                yield data
            self.files += 1
            yield bytes(-status.st_size % RECORD)
        finally:
            os.close(fd)


def _read_block(fd: int, left: int, path: str) -> bytes:
    """Return the next block of a file. Errors raise CopyError, because the header has been sent."""
    try:
        data = os.read(fd, min(BLOCK, left))
    except OSError as error:
        raise CopyError(describe(path, error)) from None
    if not data:
        raise CopyError(f"{path} was truncated while it was copied")
    return data


def _header(member: str, status: os.stat_result, kind: bytes, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(member)
    info.type, info.mode, info.size, info.linkname = kind, status.st_mode & 0o777, size, link
    seconds, nanoseconds = divmod(status.st_mtime_ns, NANOSECONDS)
    info.pax_headers = {"mtime": f"{seconds}.{nanoseconds:09}"}
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
