"""Cache of objects that this node has downloaded for S3 volumes.

Each object is a file, named after its path, ETag and size. A pod's volume consists of hard links, so the link
count shows whether an object is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os

from pools.runtimes.shim.transfers.listing import Object

TYPE_CHECKING = False  # avoids importing `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DISK_SHARE = 0.2  # share of the disk that unused objects may occupy
RESERVE_BYTES = 256 * 2**20  # space that a transfer leaves free for logs and records
LOCK_SECONDS = 0.2
_LOCK, _DRAFT = ".lock", ".new"


class Cache:
    """Cache of objects from one `source`. `root` contains all sources' caches."""

    def __init__(self, root: str, source: str) -> None:
        self._root, self._directory = root, f"{root}/{source}"
        self._lock = -1

    def lock(self, wait: Callable[[float], None]) -> None:
        """Lock the cache against other processes. Call `wait(seconds)` between attempts."""
        while True:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            self._lock = _try_lock(self._directory)
            if self._lock >= 0:
                break
            wait(LOCK_SECONDS)
        for entry in os.scandir(self._directory):  # delete the files that killed processes left behind
            if entry.name.endswith(_DRAFT):
                os.unlink(entry.path)

    def release(self) -> None:
        os.close(self._lock)

    def stored_bytes(self) -> int:
        """Return the total size in bytes of all objects, including incomplete ones."""
        return sum(map(_entry_size, os.scandir(self._directory)))

    def has(self, entry: Object) -> bool:
        return os.path.exists(self.path(entry))

    def draft_path(self, entry: Object) -> str:
        """Return the path of an object's incomplete file, which `store` moves into the cache."""
        return self.path(entry) + _DRAFT

    def store(self, entry: Object) -> None:
        """Move a complete object into the cache, where all users of this machine's volumes may read it."""
        draft = self.draft_path(entry)
        os.chmod(draft, 0o444)
        os.utime(draft, (entry.modified, entry.modified))
        os.rename(draft, self.path(entry))

    def link(self, entry: Object, path: str) -> None:
        os.link(self.path(entry), path)

    def make_room(self, size: int, needed: Iterable[Object]) -> int:
        """Evict the least recently used objects until `size` bytes and a reserve are free, if possible.

        Needed objects are kept. Return the free bytes beyond the reserve.
        """
        free = self._free_bytes()
        if free < size:
            self._evict(size - free, {self.path(entry) for entry in needed})
            free = self._free_bytes()
        return free

    def trim(self) -> None:
        """Evict the least recently used objects until the unused objects fit into the cache's share of
        the disk.
        """
        status = os.statvfs(self._root)
        limit = int(status.f_blocks * status.f_frsize * DISK_SHARE)
        unused = sum(size for _, size, _, _ in _unused_objects(self._root))
        if unused > limit:
            self._evict(unused - limit, set())

    def _evict(self, size: int, needed: set[str]) -> None:
        """Evict unused objects until `size` bytes are free, if possible.

        Locked caches are skipped, because another process may soon use their objects.
        """
        locks = {self._directory: self._lock}
        try:
            for _, bytes_, directory, path in sorted(_unused_objects(self._root)):
                if size <= 0:
                    return
                if directory not in locks:
                    locks[directory] = _try_lock(directory)
                if locks[directory] >= 0 and path not in needed:
                    os.unlink(path)
                    size -= bytes_
        finally:
            for lock in locks.values():
                if lock >= 0 and lock != self._lock:
                    os.close(lock)

    def _free_bytes(self) -> int:
        status = os.statvfs(self._root)
        return int(status.f_bavail * status.f_frsize) - RESERVE_BYTES

    def path(self, entry: Object) -> str:
        """Return the object's file path. Files in the cache must not be modified."""
        name = f"{entry.path}\0{entry.etag}\0{entry.size}"
        return f"{self._directory}/{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _unused_objects(root: str) -> Iterator[tuple[float, int, str, str]]:
    """Yield the time of last use, size, directory and path of each object that no pod uses."""
    for directory in os.scandir(root):
        for entry in os.scandir(directory.path):
            if not entry.name.startswith(".") and not entry.name.endswith(_DRAFT):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if status.st_nlink == 1:
                    # Each use changes the link count, so the status change time is the time of the last use.
                    yield status.st_ctime, status.st_size, directory.path, entry.path


def _entry_size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # another process has renamed or deleted the file
        return 0


def _try_lock(directory: str) -> int:
    """Return a descriptor that holds the directory's lock, or -1 if another process has it."""
    fd = os.open(f"{directory}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd
