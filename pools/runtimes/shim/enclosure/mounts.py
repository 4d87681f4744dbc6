"""Mounts that a shim adds to a prepared enclosure, like bubblewrap's mount options.

They are opened before the process enters the enclosure, because their sources are not visible inside.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # avoids importing `typing` and `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from ctypes import CDLL

# These system call numbers are the same on all architectures.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_CLONE, _CLOEXEC, _FROM_DESCRIPTOR = 1, os.O_CLOEXEC, 4
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 1, 2, 4
_MS_NOSUID, _MS_NODEV, _MS_SLAVE = 2, 4, 0x80000
_ATTRIBUTES = {
    "--bind": _NO_SETUID | _NO_DEVICES,
    "--ro-bind": _NO_SETUID | _NO_DEVICES | _READ_ONLY,
    "--dev-bind": _NO_SETUID,
}


class Mounts:
    """Mounts in the format of `own_mounts`. Call `open` outside the enclosure, and `attach` inside it."""

    def __init__(self, libc: CDLL, own: Sequence[str]) -> None:
        self._libc = libc
        self._rows = list(zip(own[::3], own[1::3], own[2::3]))
        self._trees: dict[str, int] = {}  # file descriptors of opened mounts, by target
        self._contents: dict[str, bytes] = {}  # contents of copied files, by target

    def open(self) -> None:
        """Open the sources. Raises OSError, for example if a source does not exist."""
        for option, source, target in self._rows:
            if option in _ATTRIBUTES:
                self._trees[target] = self._open_tree(source, _ATTRIBUTES[option])
            elif option == "--file":
                with open(source, "rb") as file:
                    self._contents[target] = file.read()

    def attach(self) -> None:
        """Mount everything in this process's enclosure. Raises OSError."""
        umask = os.umask(0o022)
        for option, source, target in self._rows:
            if option == "--remount-ro":
                self._set_attributes(_AT_FDCWD, target, 0, _READ_ONLY)
                continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if option == "--symlink":
                os.symlink(source, target)
            elif option == "--file":
                with open(target, "xb", opener=_opener) as file:
                    file.write(self._contents[target])
            elif option == "--tmpfs":
                os.makedirs(target, exist_ok=True)
                flags = _MS_NOSUID | _MS_NODEV
                self._check(self._libc.mount(b"tmpfs", target.encode(), b"tmpfs", flags, b"mode=0755"))
            else:
                self._move_mount(self._trees.pop(target), target)
        os.umask(umask)

    def close(self) -> None:
        """Close the opened mounts that have not been attached."""
        for tree in self._trees.values():
            os.close(tree)
        self._trees.clear()

    def _open_tree(self, source: str, attributes: int) -> int:
        flags = _CLONE | _CLOEXEC | _AT_RECURSIVE
        tree = self._call(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags)
        self._set_attributes(tree, "", _AT_EMPTY_PATH | _AT_RECURSIVE, attributes, _MS_SLAVE)
        return tree

    def _move_mount(self, tree: int, target: str) -> None:
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        self._call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _FROM_DESCRIPTOR)
        os.close(tree)

    def _set_attributes(self, fd: int, path: str, flags: int, attributes: int, propagation: int = 0) -> None:
        import ctypes

        described = (ctypes.c_uint64 * 4)(attributes, 0, propagation, 0)  # the C struct mount_attr
        self._call(_MOUNT_SETATTR, fd, os.fsencode(path), flags, described, ctypes.sizeof(described))

    def _call(self, number: int, *arguments: object) -> int:
        import ctypes

        passed = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        return self._check(self._libc.syscall(ctypes.c_long(number), *passed))

    @staticmethod
    def _check(result: int) -> int:
        import ctypes

        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def can_mount(libc: CDLL) -> bool:
    """Return whether the kernel (5.12 or later) lets this process open and change mounts."""
    mounts = Mounts(libc, ("--ro-bind", "/proc", "/proc"))
    try:
        mounts.open()
    except OSError:
        return False
    mounts.close()
    return True


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)
