"""Unpack a tar archive without writing outside its target directory."""

from __future__ import annotations

import os
import stat
import tarfile

from pools.runtimes.shim.channels.archive import (
    CONTENTS,
    NANOSECONDS,
    RECORD,
    CopyError,
    describe,
    stays_inside,
)

EXTENDED_MAX = 1024 * 1024  # maximum size in bytes of an entry's extended header
KEYS = (b"path", b"linkpath", b"size", b"mtime")  # keys that are read from extended headers
NUMBER_MAX = 2**62  # maximum value of a file size in bytes or of a Unix time in seconds
DIGITS_MAX = 20  # maximum digits of a size or time in an extended header


class Unpacker:
    """Unpacker for an archive that contains one file or directory.

    The file or directory is unpacked to `target`, or inside `target` if that is a directory. `name` replaces
    its name in the archive. A file appears under its name once it is complete. Links in the path of an
    archive member are not followed.
    """

    def __init__(self, target: str, name: str = "") -> None:
        self._target, self._name = target or CONTENTS, name
        self._root = ""  # name of the archive's first entry
        self._prefix: list[str] = []  # directories between the archive's top level and the root
        self._levels: list[_OpenDirectory] = []  # directories that are currently open
        self._file: _File | None = None
        self._extended: bytearray | None = None  # extended header that is being read
        self._values: dict[str, str] = {}  # extended header values for the next entry
        self._block = bytearray()
        self._left = self._padding = 0
        self.files = self.size = 0
        self.total: int | None = None  # size of a single copied file, once known
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        """Unpack the archive's next part. Raises CopyError."""
        view = memoryview(data)
        while view and not self.is_complete:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                self._write(part)
            elif self._padding:
                count = min(self._padding, len(view))
                self._padding, view = self._padding - count, view[count:]
            else:
                count = RECORD - len(self._block)
                self._block += view[:count]
                view = view[count:]
                if len(self._block) == RECORD:
                    block = bytes(self._block)
                    self._block.clear()
                    self._begin(block)
            if not self._left:
                self._end_member()

    def close(self) -> None:
        """Set the modification times of the directories that are still open.

        Raises CopyError if the archive is incomplete.
        """
        if not self.is_complete:
            raise CopyError("The connection was lost before the copy was complete")
        while self._levels:
            self._leave()

    def abort(self) -> None:
        """Delete the incomplete file, if any, and close all directories."""
        if self._file is not None:
            self._file.abort()
            self._file = None
        for level in self._levels:
            os.close(level.fd)
        self._levels.clear()

    def _write(self, part: memoryview) -> None:
        if self._extended is not None:
            self._extended += part
        elif self._file is not None:
            self.size += len(part)
            self._file.write(part)

    def _end_member(self) -> None:
        if self._extended is not None:
            self._values.update(_parse_extended(self._extended))
            self._extended = None
        elif self._file is not None:
            self._file.finish()
            self._file = None
            self.files += 1

    def _begin(self, block: bytes) -> None:
        if not any(block):
            if not self._root:
                raise CopyError("The archive is empty")
            self.is_complete = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise CopyError(f"The archive is damaged: {error}") from None
        if info.type in (tarfile.XHDTYPE, tarfile.XGLTYPE):
            if not 0 <= info.size <= EXTENDED_MAX:
                raise CopyError("The archive is damaged: a header has an invalid size")
            self._expect_content(info.size)
            self._extended = bytearray()
            return
        values, self._values = self._values, {}
        self._begin_member(info, values)

    def _expect_content(self, size: int) -> None:
        self._left, self._padding = size, -size % RECORD

    def _begin_member(self, info: tarfile.TarInfo, values: dict[str, str]) -> None:
        path = values.get("path", info.name)
        try:
            size = _number(values.get("size", str(info.size)))
            mtime = _nanoseconds(values.get("mtime", str(info.mtime)))
        except ValueError:
            raise CopyError(f"The archive contains an invalid size or time for {path}") from None
        parts = path.rstrip("/").split("/")
        if not all(parts) or ".." in parts or "." in parts[1:] or "\0" in path or size < 0:
            raise CopyError(f"The archive contains an invalid path: {path}")
        is_root = not self._root
        if is_root:
            self._open_root(parts[0], info.isdir())
        elif parts[0] != self._root:
            raise CopyError(f"{path} is outside {self._root}, the directory being copied")
        place = [*self._prefix, *parts[1:]]
        shown = "/".join([self._target.rstrip("/"), *place])
        try:
            if info.isdir():
                self._change_directory(place[:-1])
                if place:
                    self._enter_directory(place[-1], info.mode & 0o777, mtime)
                return
            if not place:
                raise CopyError(f"{path}: Not a directory")
            self._change_directory(place[:-1])
            if info.isreg():
                self._expect_content(size)
                self.total = size if is_root else None
                self._file = _File(self._levels[-1].fd, place[-1], info.mode & 0o777, mtime, shown)
            elif info.issym():
                link = values.get("linkpath", info.linkname)
                if len(parts) < 2 or "\0" in link or not stays_inside(link, len(parts) - 2):
                    raise CopyError(f"{shown} is a link to {link}, outside the copied directory")
                _replace_link(self._levels[-1].fd, place[-1], link, shown)
            else:
                raise CopyError(f"{shown} is not a file, directory or symbolic link")
        except OSError as error:
            raise CopyError(describe(shown, error)) from None

    def _open_root(self, name: str, is_directory: bool) -> None:
        """Open the directory where the archive's first member will be created."""
        self._root, name = name, self._name or name
        target = self._target
        if os.path.isdir(target):
            base, self._prefix = target, [] if name == CONTENTS and is_directory else [name]
        elif target.endswith("/") and not is_directory:
            raise CopyError(f"{target}: No such directory")
        else:
            target = target.rstrip("/") if is_directory else os.path.realpath(target)
            base, last = os.path.split(target)
            base, self._prefix = base or CONTENTS, [last]
        self._target = base
        try:
            self._levels.append(_OpenDirectory("", os.open(base, os.O_RDONLY | os.O_DIRECTORY), 0, None))
        except FileNotFoundError:
            raise CopyError(f"{base}: No such directory") from None
        except OSError as error:
            raise CopyError(describe(base, error)) from None

    def _change_directory(self, path: list[str]) -> None:
        """Open the directory at the path, and close directories that are not on the path."""
        names = [level.name for level in self._levels[1:]]
        common = 0
        while common < min(len(path), len(names)) and path[common] == names[common]:
            common += 1
        while len(self._levels) > common + 1:
            self._leave()
        for name in path[common:]:
            self._enter_directory(name, 0o755, None)

    def _enter_directory(self, name: str, mode: int, mtime: int | None) -> None:
        """Open or create a subdirectory of the innermost open directory."""
        above, is_new = self._levels[-1].fd, True
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            is_new = False
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        self._levels.append(_OpenDirectory(name, fd, mode, mtime, is_new))

    def _leave(self) -> None:
        """Close the innermost directory.

        If it is new, set its mode and modification time. Both are set last, because the mode may prevent
        writes, and writes change the time. Raises CopyError.
        """
        path = "/".join([self._target.rstrip("/"), *(level.name for level in self._levels[1:])])
        level = self._levels.pop()
        try:
            if level.is_new:
                os.fchmod(level.fd, level.mode)
                if level.mtime is not None:
                    os.utime(level.fd, ns=(level.mtime, level.mtime))
        except OSError as error:
            raise CopyError(describe(path, error)) from None
        finally:
            os.close(level.fd)


class _OpenDirectory:
    def __init__(self, name: str, fd: int, mode: int, mtime: int | None, is_new: bool = False) -> None:
        self.name, self.fd, self.mode, self.mtime, self.is_new = name, fd, mode, mtime, is_new


class _File:
    """File that is received under a temporary name. `shown` is its path in error messages."""

    def __init__(self, directory: int, name: str, mode: int, mtime: int, shown: str) -> None:
        self._directory, self._name, self._mode, self._mtime, self._shown = (
            directory,
            name,
            mode,
            mtime,
            shown,
        )
        _require_replaceable(directory, name, shown)
        self._temporary = _temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._fd = os.open(self._temporary, flags, 0o600, dir_fd=directory)

    def write(self, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise CopyError(describe(self._shown, error)) from None

    def finish(self) -> None:
        """Set the file's mode and time, and rename it to its final name."""
        try:
            os.fchmod(self._fd, self._mode)
            os.utime(self._fd, ns=(self._mtime, self._mtime))
            fd, self._fd = self._fd, -1
            os.close(fd)
            os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except OSError as error:
            self.abort()
            raise CopyError(describe(self._shown, error)) from None

    def abort(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        try:
            os.unlink(self._temporary, dir_fd=self._directory)
        except OSError:  # the pod may have deleted the directory
            pass


def _temporary_name() -> str:
    return f".berth-{os.urandom(6).hex()}"


def _require_replaceable(directory: int, name: str, shown: str) -> None:
    """Raise CopyError if `name` exists and is neither a file nor a link."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise CopyError(f"{shown} is a directory, which a file cannot replace")
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise CopyError(f"{shown} is a device or another special file")


def _replace_link(directory: int, name: str, link: str, shown: str) -> None:
    _require_replaceable(directory, name, shown)
    temporary = _temporary_name()
    os.symlink(link, temporary, dir_fd=directory)
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise


def _number(text: str) -> int:
    """Parse a number in a header. Raises ValueError if it is too large to be valid."""
    number = int(text) if len(text) <= DIGITS_MAX else NUMBER_MAX
    if abs(number) >= NUMBER_MAX:
        raise ValueError("the number is too large")
    return number


def _nanoseconds(text: str) -> int:
    """Convert a time in seconds, such as 12.5, to nanoseconds. Raises ValueError."""
    seconds, _, fraction = text.partition(".")
    return _number(seconds) * NANOSECONDS + int(fraction[:9].ljust(9, "0"))


def _parse_extended(data: bytearray) -> dict[str, str]:
    """Return the values that Berth uses from an extended header (LENGTH KEY=VALUE). Raises CopyError."""
    values, start = {}, 0
    while start < len(data):
        space = data.find(b" ", start, start + DIGITS_MAX)
        try:
            end = start + int(data[start : max(space, start)])
        except ValueError:
            end = 0
        equals = data.find(b"=", space, end)
        if not space < equals < end <= len(data) or data[end - 1] != ord("\n"):
            raise CopyError("The archive is damaged: a header is invalid")
        key = bytes(data[space + 1 : equals])
        if key in KEYS:
            values[key.decode()] = data[equals + 1 : end - 1].decode("utf-8", "surrogateescape")
        start = end
    return values
