"""Describe the enclosure that spare shims prepare on this machine."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from pools.runtimes.enclosure.command import (
    FileSystemView,
    Mount,
    own_mounts,
    prepared_command,
    without_temporary_paths,
)
from pools.runtimes.enclosure.levels import IsolationLevel
from pools.runtimes.shim.enclosure.prepared import FILE
from pools.runtimes.shim.records import Record, write_record


class Preparation:
    """Record of the enclosure that spare shims prepare. `root` is the runtime's directory."""

    def __init__(self, root: Path) -> None:
        self._path = str(root / FILE)
        self._digest = ""  # digest of the record on disk

    def fields(
        self,
        view: FileSystemView,
        shared: FileSystemView,
        level: IsolationLevel,
        *,
        program: str,
        blocks_nesting: bool,
    ) -> Record:
        """Return the pod spec fields for a prepared enclosure, or no fields if it cannot be prepared.

        `view` is the part of the file system that the pod sees, and `shared` the part that all pods see.
        Requires root.
        """
        shared = without_temporary_paths(shared)
        own = own_mounts(view, shared) if level is IsolationLevel.USERS else None
        if own is None:
            return []
        command = prepared_command(shared, level, program=program, blocks_nesting=blocks_nesting)
        digest = _digest(command, (*shared.readable, *shared.writable))
        if digest != self._digest:
            record = [("digest", digest), *(("enclosure", argument) for argument in command)]
            write_record(self._path, record, durable=False)
            self._digest = digest
        return [("prepared", digest), *(("own_mount", text) for text in own)]


def _digest(command: tuple[str, ...], mounts: Iterable[Mount]) -> str:
    """Return a digest of the command and of the files that it mounts.

    A replaced file, such as /etc/resolv.conf, must not remain in a prepared enclosure.
    """
    digest = hashlib.sha256(repr((command, os.uname().nodename)).encode("utf-8", "surrogateescape"))
    for mount in mounts:
        status = os.stat(mount.source)  # noqa: PTH116 - faster, and called for each pod
        is_file = stat.S_ISREG(status.st_mode)
        digest.update(b"%d %d " % (status.st_dev, status.st_ino))
        digest.update(b"%d %d " % (status.st_size, status.st_mtime_ns) if is_file else b"")
    return digest.hexdigest()
