"""Read and write the packets of SFTP version 3."""

from __future__ import annotations

import os
import stat
import time

SIZE, OWNER, PERMISSIONS, TIMES = 1, 2, 4, 8  # flags for the attributes that a packet contains
EXTENDED = 0x80000000
PACKET_MAX = 256 * 1024
_HALF_YEAR = 180 * 24 * 3600.0


class BrokenPacket(Exception):
    """Raised if the client violates the protocol."""


class Reader:
    """Reader of one packet's fields. All methods raise BrokenPacket if the packet is too short."""

    def __init__(self, data: bytes) -> None:
        self._data, self._start = data, 0

    def take(self, count: int) -> bytes:
        end = self._start + count
        if end > len(self._data):
            raise BrokenPacket("a packet is too short")
        part = self._data[self._start : end]
        self._start = end
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def uint64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def text(self) -> bytes:
        return self.take(self.uint32())

    def path(self) -> bytes:
        """Read a path. An empty path means the current directory."""
        path = self.text() or b"."
        if b"\0" in path:
            raise BrokenPacket("a path contains NUL")
        return path

    def attributes(self) -> Attributes:
        flags = self.uint32()
        attributes = Attributes()
        if flags & SIZE:
            attributes.size = self.uint64()
        if flags & OWNER:
            attributes.owner = (self.uint32(), self.uint32())
        if flags & PERMISSIONS:
            attributes.permissions = self.uint32() & 0o7777
        if flags & TIMES:
            attributes.times = (self.uint32(), self.uint32())
        if flags & EXTENDED:
            for _ in range(2 * self.uint32()):
                self.text()
        return attributes


class Attributes:
    """File attributes that the client sets. Attributes that are None do not change."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.owner: tuple[int, int] | None = None
        self.permissions: int | None = None
        self.times: tuple[int, int] | None = None

    def apply(self, file: bytes | int, follow: bool = True) -> None:
        """Set a file's attributes, given its path or descriptor. Raises OSError."""
        if self.size is not None:
            os.truncate(file, self.size)
        if self.permissions is not None:
            os.chmod(file, self.permissions)
        if self.owner is not None:
            os.chown(file, *self.owner, follow_symlinks=follow)
        if self.times is not None:
            os.utime(file, self.times, follow_symlinks=follow)


def uint32(value: int) -> bytes:
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def uint64(value: int) -> bytes:
    return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def text(value: bytes) -> bytes:
    return uint32(len(value)) + value


def encode_attributes(values: os.stat_result) -> bytes:
    return (
        uint32(SIZE | OWNER | PERMISSIONS | TIMES) + uint64(values.st_size)
        + uint32(values.st_uid) + uint32(values.st_gid) + uint32(values.st_mode)
        + uint32(int(values.st_atime)) + uint32(int(values.st_mtime))
    )  # fmt: skip


def long_name(name: bytes, values: os.stat_result) -> bytes:
    """Return a file's line in the output of `ls -l`."""
    is_recent = abs(time.time() - values.st_mtime) < _HALF_YEAR
    changed = time.strftime("%b %e %H:%M" if is_recent else "%b %e  %Y", time.localtime(values.st_mtime))
    columns = (
        f"{stat.filemode(values.st_mode)} {values.st_nlink:4d} {values.st_uid:<8d} {values.st_gid:<8d} "
        f"{values.st_size:8d} {changed} "
    )
    return columns.encode() + name
