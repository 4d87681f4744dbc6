"""Read a pod's files without following links, which could point to any file on the machine.

Hard links are skipped too, because some machines let a pod's user link to other users' files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

from pools.runtimes.files.base import FilesNotFound, PodFile, PodFiles

FILES_MAX = 100_000
PATH_BYTES_MAX = 32 * 2**20  # total length of all paths in a listing
DEPTH_MAX = 64
SKIPPED_MAX = 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def list_files(root: str, inside: str, paths: Collection[str]) -> PodFiles:
    """Return the regular files at and below `paths`, relative to `root` or to its subdirectory `inside`."""
    walk = _DirectoryWalk()
    with _open_directory(root, _split_path(inside)) as base:
        for path in sorted(set(paths)):
            walk.add(base, path, path, len(_split_path(path)))
    files = sorted(walk.files, key=lambda file: file.path)
    return PodFiles(tuple(files), dict(sorted(walk.skipped.items())[:SKIPPED_MAX]))


def list_files_below(roots: Mapping[str, tuple[str, str]], path: str) -> PodFiles:
    """Return the regular files at or below `path`, which begins with the name of a root.

    An empty path selects all roots. `roots` contains the parent and the name of each root's directory.
    Missing directories are skipped. Raises FilesNotFound if no root has the name.
    """
    label, *inside = _split_path(path) or [""]
    if label and label not in roots:
        raise FilesNotFound(f"{path} is not in any of the directories {', '.join(sorted(roots))}")
    walk = _DirectoryWalk()
    for each in (label,) if label else sorted(roots):
        parent, name = roots[each]
        with _open_directory(parent, ()) as base:
            if _exists(base, name):
                walk.add(base, "/".join([name, *inside]), "/".join([each, *inside]), 1 + len(inside))
    files = sorted(walk.files, key=lambda file: file.path)
    return PodFiles(tuple(files), dict(sorted(walk.skipped.items())[:SKIPPED_MAX]))


def list_changed_files(parent: str, name: str, since: int) -> tuple[PodFiles, set[str]]:
    """Return the files whose status changed after `since` (nanoseconds), and the paths of all entries except
    directories.

    All paths are relative to the directory. Raises FilesNotFound.
    """
    walk = _DirectoryWalk(since)
    with _open_directory(parent, [name]) as base:
        walk.add_directory(base, ".", "", 0)
    files = sorted(walk.files, key=lambda file: file.path)
    return PodFiles(tuple(files), dict(sorted(walk.skipped.items())[:SKIPPED_MAX])), walk.existing_paths


def read_listed_file(roots: Mapping[str, tuple[str, str]], path: str, offset: int, limit: int) -> bytes:
    """Return at most `limit` bytes from `offset` in a file that `list_files_below` has listed. Raises
    FilesNotFound.
    """
    label, *inside = _split_path(path) or [""]
    if label not in roots or not inside:
        raise FilesNotFound(f"{path} is not a file in any of the directories {', '.join(sorted(roots))}")
    parent, name = roots[label]
    return read_file(parent, name, "/".join(inside), offset, limit)


def read_file(root: str, inside: str, path: str, offset: int, limit: int) -> bytes:
    *folders, name = _split_path(path) or [""]
    with _open_directory(root, [*_split_path(inside), *folders]) as folder:
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            raise FilesNotFound(f"{path}: {error.strerror}") from error
        try:
            if problem := _skip_reason(os.fstat(fd)):
                raise FilesNotFound(f"{path} {problem}")
            return os.pread(fd, limit, offset)
        finally:
            os.close(fd)


class _DirectoryWalk:
    """Directory walk that collects the regular files whose status changed after `since` (nanoseconds)."""

    def __init__(self, since: int = -1) -> None:
        self._since = since
        self.files: list[PodFile] = []
        self.existing_paths: set[str] = set()  # paths of all entries except directories
        self.skipped: dict[str, str] = {}
        self._seen = 0
        self._path_bytes = 0

    def add(self, base: int, relative: str, path: str, depth: int) -> None:
        """List the file `relative`, or all files below it if it is a directory.

        `base` is the descriptor of the directory in which `relative` starts.
        """
        *folders, name = _split_path(relative)
        try:
            with _open_subdirectory(base, folders) as folder:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    self.add_directory(folder, name, path, depth)
                else:
                    self._add_file(path, info)
        except OSError as error:
            self._skip(path, error.strerror or str(error))

    def _add_file(self, path: str, info: os.stat_result) -> None:
        self._count_path(path)
        self.existing_paths.add(path)
        if problem := _skip_reason(info):
            self._skip(path, problem)
        elif info.st_ctime_ns > self._since:
            self.files.append(PodFile(path, info.st_size, bool(info.st_mode & 0o100)))

    def add_directory(self, folder: int, name: str, path: str, depth: int) -> None:
        """Add all entries of the directory `name`. `folder` is the descriptor of its parent."""
        if depth >= DEPTH_MAX:
            self._skip(path, f"is more than {DEPTH_MAX} directories deep")
            return
        with _open_subdirectory(folder, [name]) as directory:
            for each in self._list_names(directory):
                below = f"{path}/{each}" if path else each
                if _is_text(each):
                    self.add(directory, each, below, depth + 1)
                else:
                    self._skip(below.encode("utf-8", "replace").decode(), "is not a UTF-8 path")

    def _list_names(self, directory: int) -> list[str]:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in islice(entries, FILES_MAX + 1))
        self._seen += len(names)
        if self._seen > FILES_MAX:
            raise FilesNotFound(
                f"the paths contain more than {FILES_MAX:,} files and directories. Declare fewer paths"
            )
        return names

    def _count_path(self, path: str) -> None:
        """Add the path's length to the total length of all paths.

        Raises FilesNotFound if the total is too large.
        """
        self._path_bytes += len(os.fsencode(path))
        if self._path_bytes > PATH_BYTES_MAX:
            limit = f"{PATH_BYTES_MAX // 2**20} MiB"
            raise FilesNotFound(f"the file paths exceed {limit} in total")

    def _skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped[path] = reason


@contextmanager
def _open_directory(root: str, parts: Collection[str]) -> Iterator[int]:
    """Open a directory below `root`. Pods cannot replace `root` itself. Raises FilesNotFound."""
    try:
        base = os.open(root, _DIRECTORY)
    except OSError as error:
        raise FilesNotFound("the pod's files no longer exist") from error
    try:
        with _open_subdirectory(base, parts) as directory:
            yield directory
    except OSError as error:
        raise FilesNotFound(f"{'/'.join(parts)}: {error.strerror}") from error
    finally:
        os.close(base)


@contextmanager
def _open_subdirectory(base: int, parts: Collection[str]) -> Iterator[int]:
    """Open a directory below `base` without following links. Raises OSError."""
    fd = os.dup(base)
    try:
        for part in parts:
            following = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = following
        yield fd
    finally:
        os.close(fd)


def _split_path(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if path.startswith("/") or any(part in (".", "..") for part in parts):
        raise FilesNotFound(f"{path} is outside the pod's directory")
    return parts


def _exists(base: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=base, follow_symlinks=False)
    except OSError:
        return False
    return True


def _skip_reason(info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return "is a symbolic link"
    if not stat.S_ISREG(info.st_mode):
        return "is not a regular file"
    return "has several hard links" if info.st_nlink > 1 else ""


def _is_text(name: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in name)
