"""Unpack a tar archive from a pod.

The archive is not trusted, because the pod's own image creates it.
"""

import os
import tarfile
from pathlib import Path

from pools.runtimes.files.reading import DEPTH_MAX, FILES_MAX, PATH_BYTES_MAX, SKIPPED_MAX

RECORD = tarfile.BLOCKSIZE
LONG_NAME_MAX = 8192  # maximum length in bytes of a path that does not fit into a header
NAME_MAX = 255
EXTENSIONS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
EXTENSION_MAX = 64 * 1024
REASONS = {tarfile.LNKTYPE: "has several hard links", tarfile.SYMTYPE: "is a symbolic link"}
MIB = 2**20


class BrokenArchive(Exception):
    """Raised if the archive is damaged or inconsistent."""


class FilesTooLarge(Exception):
    """Raised if the files exceed a limit. The message says which."""


class Unpacker:
    """Unpacker that writes only regular files, and only below `target`.

    `skipped` maps the path of every other entry to the reason why it was skipped. `is_complete` is true after
    the end of the archive.
    """

    def __init__(self, target: Path, tops: tuple[str, ...], size_max: int, files_max: int) -> None:
        self._target, self._tops = target, tops
        self._size_max, self._files_max = size_max, files_max
        self._buffer = bytearray()
        self._file: int | None = None
        self._remaining = self._padding = 0  # unread bytes of the current file and of its padding
        self._extension: tuple[bytes, bytearray] | None = None
        self._long_name = b""
        self._entries = self._files = self._size = self._path_bytes = 0
        self._largest = ("", 0)
        self.skipped: dict[str, str] = {}
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        """Unpack the archive's next bytes. Raises BrokenArchive, FilesTooLarge or OSError."""
        self._buffer += data
        while self._buffer and not self.is_complete:
            if self._remaining:
                self._store(self._take_bytes(self._remaining))
            elif self._padding:
                self._padding -= len(self._take_bytes(self._padding))
            elif len(self._buffer) < RECORD:
                return
            else:
                self._begin(bytes(self._take_bytes(RECORD)))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take_bytes(self, count: int) -> bytes:
        part = bytes(self._buffer[:count])
        del self._buffer[:count]
        return part

    def _store(self, part: bytes) -> None:
        self._remaining -= len(part)
        if self._extension is not None:
            self._extension[1].extend(part)
        elif self._file is not None:
            view = memoryview(part)
            while view:
                view = view[os.write(self._file, view) :]
        if not self._remaining:
            self._end()

    def _end(self) -> None:
        self.close()
        if self._extension is not None:
            kind, content = self._extension
            self._extension = None
            if kind == tarfile.GNUTYPE_LONGNAME:
                self._long_name = bytes(content).rstrip(b"\0")
            elif kind == tarfile.XHDTYPE:
                self._long_name = _pax_path(bytes(content))

    def _begin(self, header: bytes) -> None:
        if header == bytes(RECORD):
            self.is_complete = True
            return
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise BrokenArchive(f"the file archive is damaged: {error}") from None
        if info.size < 0:
            raise BrokenArchive("the file archive is damaged: negative size")
        if info.type in EXTENSIONS:
            if info.size > EXTENSION_MAX:
                raise BrokenArchive("the file archive is damaged: a path is too long")
            self._extension = info.type, bytearray()
            self._expect_content(info.size)
            return
        name = os.fsdecode(self._long_name) if self._long_name else info.name
        self._long_name = b""
        self._add_entry(info, name)

    def _expect_content(self, size: int) -> None:
        self._remaining, self._padding = size, -size % RECORD
        if not size:
            self._end()

    def _add_entry(self, info: tarfile.TarInfo, name: str) -> None:
        path = "/".join(part for part in name.split("/") if part not in ("", "."))
        self._entries += 1
        self._path_bytes += len(os.fsencode(path))
        if self._entries > FILES_MAX:
            raise FilesTooLarge(
                f"The paths contain more than {FILES_MAX:,} files and directories. Declare fewer paths."
            )
        if self._path_bytes > PATH_BYTES_MAX:
            limit = f"{PATH_BYTES_MAX // 2**20} MiB"
            raise FilesTooLarge(f"The file paths exceed {limit} in total. Declare fewer paths.")
        if info.isdir():
            self._expect_content(0)
            return
        if not info.isreg():
            self._skip(path, REASONS.get(info.type, "is not a regular file"))
            self._expect_content(0 if info.type in REASONS or info.isdev() else info.size)
            return
        if problem := self._path_problem(path):
            self._skip(path, problem)
        else:
            self._check_size(path, info.size)
            self._file = self._open(path, is_executable=bool(info.mode & 0o100))
        self._expect_content(info.size)

    def _check_size(self, path: str, size: int) -> None:
        self._files, self._size = self._files + 1, self._size + size
        self._largest = max(self._largest, (path, size), key=lambda each: each[1])
        if self._size > self._size_max:
            largest, its_size = self._largest
            raise FilesTooLarge(
                f"The files exceed the maximum of {self._size_max / MIB:,.1f} MiB. Declare fewer paths. The "
                f"largest file so far is {largest} ({its_size / MIB:,.1f} MiB)."
            )
        if self._files > self._files_max:
            raise FilesTooLarge(
                f"The pod has more files to copy than the maximum of {self._files_max:,}. Pack them "
                "into an archive, or declare fewer paths."
            )

    def _path_problem(self, path: str) -> str:
        parts = path.split("/")
        if any("\ud800" <= char <= "\udfff" for char in path):
            return "is not a UTF-8 path"
        if ".." in parts or parts[0] not in self._tops or len(parts) < 2:
            return "is outside the pod's directory"
        if len(parts) > DEPTH_MAX:
            return f"is more than {DEPTH_MAX} directories deep"
        if len(path.encode()) > LONG_NAME_MAX // 2 or any(len(part.encode()) > NAME_MAX for part in parts):
            return "has a path that is too long"
        return ""

    def _open(self, path: str, *, is_executable: bool) -> int:
        """Create a file. This process created all directories in the path, so none is a link."""
        place = self._target / path
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(place, flags, 0o700 if is_executable else 0o600)
        except (FileExistsError, NotADirectoryError):
            raise BrokenArchive(f"the file archive contains {path} twice") from None

    def _skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped[path.encode("utf-8", "replace").decode()] = reason


def _pax_path(content: bytes) -> bytes:
    """Return the path in an extended header, or an empty value if it contains none. Raises BrokenArchive."""
    path = b""
    while content:
        length, _, _ = content.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(content):
            raise BrokenArchive("the file archive is damaged: invalid extended header")
        key, _, value = content[len(length) + 1 : int(length)].partition(b"=")
        if key == b"path":
            path = value.removesuffix(b"\n")
        elif key == b"size":
            raise BrokenArchive("the file archive has sizes in extended headers, which are not supported")
        content = content[int(length) :]
    return path
