"""SFTP server on stdin and stdout."""

from __future__ import annotations

import errno
import os

from pools.runtimes.shim.channels.sftp.wire import (
    PACKET_MAX,
    BrokenPacket,
    Reader,
    encode_attributes,
    long_name,
    text,
    uint32,
    uint64,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INIT, VERSION = 1, 2
STATUS, HANDLE, DATA, NAME, ATTRIBUTES, EXTENDED, EXTENDED_REPLY = 101, 102, 103, 104, 105, 200, 201
OK, END_OF_FILE, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, UNSUPPORTED = 0, 1, 2, 3, 4, 5, 8
READ, WRITE, APPEND, CREATE, TRUNCATE, EXCLUSIVE = 1, 2, 4, 8, 16, 32  # flags for opening a file
HANDLES_MAX = 1024
DATA_MAX = PACKET_MAX - 1024
NAMES_PER_REPLY = 100
EXTENSIONS = {  # supported extensions and their versions
    b"posix-rename@openssh.com": b"1", b"hardlink@openssh.com": b"1", b"fsync@openssh.com": b"1",
    b"lsetstat@openssh.com": b"1", b"statvfs@openssh.com": b"2", b"limits@openssh.com": b"1",
    b"expand-path@openssh.com": b"1",
}  # fmt: skip
_CODES = {
    errno.ENOENT: NO_SUCH_FILE, errno.ENOTDIR: NO_SUCH_FILE, errno.EBADF: NO_SUCH_FILE,
    errno.ELOOP: NO_SUCH_FILE, errno.EACCES: PERMISSION_DENIED, errno.EPERM: PERMISSION_DENIED,
}  # fmt: skip
BLOCK = 256 * 1024


class SftpServer:
    """SFTP server for one client. `write` sends a packet. `home` is the directory that replaces `~`."""

    def __init__(self, write: Callable[[bytes], None], home: bytes) -> None:
        self._write, self._home = write, home
        self._files: dict[bytes, int] = {}  # file descriptors by handle
        self._directories: dict[bytes, Iterator[os.DirEntry[bytes]]] = {}
        self._appends: set[bytes] = set()  # handles of files that were opened for appending
        self._handles = 0
        self._received = bytearray()
        self._requests = {
            3: self._open, 4: self._close, 5: self._read, 6: self._write_data, 7: self._lstat, 8: self._fstat,
            9: self._setstat, 10: self._fsetstat, 11: self._open_directory, 12: self._read_directory,
            13: self._remove, 14: self._make_directory, 15: self._remove_directory, 16: self._real_path,
            17: self._stat, 18: self._rename, 19: self._read_link, 20: self._make_link,
            EXTENDED: self._extended,
        }  # fmt: skip
        self._extensions = {
            b"posix-rename@openssh.com": self._replace, b"hardlink@openssh.com": self._hard_link,
            b"fsync@openssh.com": self._sync, b"lsetstat@openssh.com": self._lsetstat,
            b"statvfs@openssh.com": self._file_system, b"limits@openssh.com": self._limits,
            b"expand-path@openssh.com": self._expand,
        }  # fmt: skip

    def feed(self, data: bytes) -> None:
        """Add received bytes, and answer all complete requests. Raises BrokenPacket."""
        self._received += data
        while len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big")
            if not 0 < length <= PACKET_MAX:
                raise BrokenPacket(f"a packet has {length} bytes, but the maximum is {PACKET_MAX}")
            if len(self._received) < 4 + length:
                return
            packet = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            self._answer(Reader(packet))

    def _answer(self, packet: Reader) -> None:
        kind = packet.byte()
        if kind == INIT:
            extensions = b"".join(text(name) + text(version) for name, version in EXTENSIONS.items())
            self._send(VERSION, uint32(3) + extensions)
            return
        self._id = packet.take(4)
        try:
            request = self._requests.get(kind)
            if request is None:
                self._send_status(UNSUPPORTED, f"Requests of type {kind} are not supported")
            else:
                request(packet)
        except BrokenPacket as error:
            self._send_status(BAD_MESSAGE, str(error))
        except (OSError, OverflowError) as error:
            code = _CODES.get(getattr(error, "errno", 0) or 0, FAILURE)
            self._send_status(code, getattr(error, "strerror", "") or str(error))

    def _send(self, kind: int, payload: bytes) -> None:
        self._write(uint32(1 + len(payload)) + bytes((kind,)) + payload)

    def _reply(self, kind: int, payload: bytes) -> None:
        self._send(kind, self._id + payload)

    def _send_status(self, code: int = OK, message: str = "") -> None:
        self._reply(STATUS, uint32(code) + text(message.encode("utf-8", "replace")) + text(b""))

    def _send_names(self, names: list[tuple[bytes, bytes, bytes]]) -> None:
        parts = [text(name) + text(line) + attributes for name, line, attributes in names]
        self._reply(NAME, uint32(len(parts)) + b"".join(parts))

    def _new_handle(self) -> bytes:
        if len(self._files) + len(self._directories) >= HANDLES_MAX:
            raise OSError(errno.EMFILE, "Too many open files")
        self._handles += 1
        return str(self._handles).encode()

    def _file_descriptor(self, packet: Reader) -> int:
        """Return the descriptor of the open file that the request refers to. Raises OSError."""
        try:
            return self._files[packet.text()]
        except KeyError:
            raise OSError(errno.EBADF, "Unknown handle") from None

    def _open(self, packet: Reader) -> None:
        path, access, attributes = packet.path(), packet.uint32(), packet.attributes()
        handle = self._new_handle()
        flags = {READ | WRITE: os.O_RDWR, WRITE: os.O_WRONLY}.get(access & (READ | WRITE), os.O_RDONLY)
        for flag, value in (
            (APPEND, os.O_APPEND), (CREATE, os.O_CREAT), (TRUNCATE, os.O_TRUNC), (EXCLUSIVE, os.O_EXCL),
        ):  # fmt: skip
            flags |= value if access & flag else 0
        permissions = 0o666 if attributes.permissions is None else attributes.permissions
        # Without O_NONBLOCK, a named pipe without a reader or writer would block all other requests.
        self._files[handle] = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, permissions)
        if access & APPEND:
            self._appends.add(handle)
        self._reply(HANDLE, text(handle))

    def _close(self, packet: Reader) -> None:
        handle = packet.text()
        self._appends.discard(handle)
        if handle in self._directories:
            del self._directories[handle]
        elif handle in self._files:
            os.close(self._files.pop(handle))
        else:
            raise OSError(errno.EBADF, "Unknown handle")
        self._send_status()

    def _read(self, packet: Reader) -> None:
        fd, offset, length = self._file_descriptor(packet), packet.uint64(), packet.uint32()
        data = os.pread(fd, min(length, DATA_MAX), offset)
        if data or not length:
            self._reply(DATA, text(data))
        else:
            self._send_status(END_OF_FILE, "End of file")

    def _write_data(self, packet: Reader) -> None:
        handle = packet.text()
        if handle not in self._files:
            raise OSError(errno.EBADF, "Unknown handle")
        fd, offset, data = self._files[handle], packet.uint64(), memoryview(packet.text())
        while data:
            written = os.write(fd, data) if handle in self._appends else os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written
        self._send_status()

    def _lstat(self, packet: Reader) -> None:
        self._reply(ATTRIBUTES, encode_attributes(os.lstat(packet.path())))

    def _stat(self, packet: Reader) -> None:
        self._reply(ATTRIBUTES, encode_attributes(os.stat(packet.path())))

    def _fstat(self, packet: Reader) -> None:
        self._reply(ATTRIBUTES, encode_attributes(os.fstat(self._file_descriptor(packet))))

    def _setstat(self, packet: Reader) -> None:
        path = packet.path()
        packet.attributes().apply(path)
        self._send_status()

    def _fsetstat(self, packet: Reader) -> None:
        fd = self._file_descriptor(packet)
        packet.attributes().apply(fd)
        self._send_status()

    def _lsetstat(self, packet: Reader) -> None:
        path = packet.path()
        attributes = packet.attributes()
        if os.path.islink(path):  # the size and permissions of a link cannot be changed
            attributes.size = attributes.permissions = None
        attributes.apply(path, follow=False)
        self._send_status()

    def _open_directory(self, packet: Reader) -> None:
        entries, handle = os.scandir(packet.path()), self._new_handle()
        self._directories[handle] = entries
        self._reply(HANDLE, text(handle))

    def _read_directory(self, packet: Reader) -> None:
        entries = self._directories.get(packet.text())
        if entries is None:
            raise OSError(errno.EBADF, "Unknown handle")
        names = []
        for entry in entries:
            try:
                values = entry.stat(follow_symlinks=False)
            except OSError:  # the entry was deleted after the directory was read
                continue
            names.append((entry.name, long_name(entry.name, values), encode_attributes(values)))
            if len(names) == NAMES_PER_REPLY:
                break
        if names:
            self._send_names(names)
        else:
            self._send_status(END_OF_FILE, "End of directory")

    def _remove(self, packet: Reader) -> None:
        os.unlink(packet.path())
        self._send_status()

    def _make_directory(self, packet: Reader) -> None:
        path, attributes = packet.path(), packet.attributes()
        os.mkdir(path, 0o777 if attributes.permissions is None else attributes.permissions)
        self._send_status()

    def _remove_directory(self, packet: Reader) -> None:
        os.rmdir(packet.path())
        self._send_status()

    def _real_path(self, packet: Reader) -> None:
        self._send_path(packet.path())

    def _expand(self, packet: Reader) -> None:
        path = packet.path()
        if path == b"~" or path.startswith(b"~/"):
            path = self._home + path[1:]
        self._send_path(path)

    def _send_path(self, path: bytes) -> None:
        path = os.path.realpath(path)
        self._send_names([(path, path, uint32(0))])

    def _rename(self, packet: Reader) -> None:
        """Rename a file without replacing an existing one."""
        old, new = packet.path(), packet.path()
        if os.path.lexists(new):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(old, new)
        self._send_status()

    def _replace(self, packet: Reader) -> None:
        old, new = packet.path(), packet.path()
        os.rename(old, new)
        self._send_status()

    def _hard_link(self, packet: Reader) -> None:
        old, new = packet.path(), packet.path()
        os.link(old, new, follow_symlinks=False)
        self._send_status()

    def _read_link(self, packet: Reader) -> None:
        link = os.readlink(packet.path())
        self._send_names([(link, link, uint32(0))])

    def _make_link(self, packet: Reader) -> None:
        """Create a symbolic link. The target comes first, as in OpenSSH's requests."""
        target, link = packet.path(), packet.path()
        os.symlink(target, link)
        self._send_status()

    def _extended(self, packet: Reader) -> None:
        name = packet.text()
        request = self._extensions.get(name)
        if request is None:
            shown = name.decode("utf-8", "replace")
            self._send_status(UNSUPPORTED, f"The extension {shown} is not supported")
        else:
            request(packet)

    def _sync(self, packet: Reader) -> None:
        os.fsync(self._file_descriptor(packet))
        self._send_status()

    def _limits(self, packet: Reader) -> None:
        values = (PACKET_MAX, DATA_MAX, DATA_MAX, HANDLES_MAX)
        self._reply(EXTENDED_REPLY, b"".join(map(uint64, values)))

    def _file_system(self, packet: Reader) -> None:
        values = os.statvfs(packet.path())
        numbers = (
            values.f_bsize, values.f_frsize, values.f_blocks, values.f_bfree, values.f_bavail,
            values.f_files, values.f_ffree, values.f_favail, values.f_fsid, values.f_flag & 3,
            values.f_namemax,
        )  # fmt: skip
        self._reply(EXTENDED_REPLY, b"".join(map(uint64, numbers)))


def serve(write: Callable[[bytes], None], home: str) -> None:
    """Serve the client on stdin until it disconnects. Raises BrokenPacket or OSError."""
    server = SftpServer(write, os.fsencode(home))
    while data := os.read(0, BLOCK):
        server.feed(data)
