"""Build the bubblewrap command line that encloses a pod. This module does not access the machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pools.runtimes.enclosure.levels import Level

# Program that keeps the namespaces alive. The program ends when the shim closes its standard input.
HOLDER = "/bin/cat"
# bubblewrap's option that copies a file. The shim replaces the source path with an open descriptor.
COPY = "--file"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside the enclosure


@dataclass(frozen=True)
class Mount:
    """Bind mount of the machine's path `source` at `target` in a pod.

    With `is_copied`, the pod gets a copy of the file instead, which is faster.
    """

    source: str
    target: str
    is_copied: bool = False

    @classmethod
    def at(cls, path: str) -> Mount:
        return cls(path, path)


@dataclass(frozen=True)
class View:
    """Part of the machine's file system that a pod sees.

    `links` are symbolic links in the root directory, such as /bin. `readable` mounts are read-only, and the
    directories in `hidden` are empty. If several entries cover a path, the longest entry applies.
    `shared_memory` is the directory that the workload's pods share as /dev/shm, or empty for a private one.
    `devices` are device nodes. `secrets` is the path of a tmpfs for secret files, or empty.
    """

    links: Sequence[tuple[str, str]] = ()
    readable: Sequence[Mount] = ()
    hidden: Sequence[str] = ()
    writable: Sequence[Mount] = ()
    devices: Sequence[str] = ()
    shared_memory: str = ""
    secrets: str = ""


def enclosure_command(
    view: View, level: Level, *, program: str = "bwrap", blocks_nesting: bool = True
) -> list[str]:
    """Return the bubblewrap command line that builds the enclosure and waits until its stdin is closed.

    `blocks_nesting` forbids nested user namespaces, which requires bubblewrap 0.8.
    """
    argv = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if level is Level.NAMESPACES:
        argv += ["--unshare-user", *(["--disable-userns"] if blocks_nesting else [])]
    argv += ["--cap-drop", "ALL"]
    for destination, path in view.links:
        argv += ["--symlink", destination, path]
    directories: set[str] = set()
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for device in view.devices:
        argv += [*_parent_options(device, directories), "--dev-bind", device, device]
    if view.shared_memory:
        argv += ["--bind", view.shared_memory, _SHARED_MEMORY]
    else:
        argv += ["--perms", "1777", "--tmpfs", _SHARED_MEMORY]
    for option, path, source in sorted(_mounts(view), key=lambda mount: mount[1].rstrip("/").count("/")):
        mode = ["--perms", "0644"] if option == COPY else []
        argv += [*_parent_options(path, directories), *mode, option, *([source] if source else []), path]
    if view.secrets:
        argv += [*_parent_options(view.secrets, directories), "--perms", "0755", "--tmpfs", view.secrets]
    for path in ("/dev", *view.hidden, "/"):
        argv += ["--remount-ro", path]
    return [*argv, "--chdir", "/", "--", HOLDER]


def _mounts(view: View) -> Iterator[tuple[str, str, str]]:
    """Yield the bubblewrap option, target and source of each mount."""
    for mount in view.readable:
        yield _readable_option(mount, view), mount.target, mount.source
    for mount in view.writable:
        yield "--bind", mount.target, mount.source
    for path in view.hidden:
        yield "--tmpfs", path, ""


def _readable_option(mount: Mount, view: View) -> str:
    """Return the bubblewrap option for a read-only path: a symbolic link, a copy or a mount."""
    if mount.source == mount.target and not mount.is_copied:
        return "--ro-bind"
    others = [each.target for each in (*view.readable, *view.writable) if each is not mount]
    others += view.hidden
    if is_inside(mount.target, others):
        return "--ro-bind"  # no mount point can be created inside another mount
    if mount.is_copied:
        return COPY
    visible = [each.target for each in view.readable if each.source == each.target]
    shadowed = [*view.hidden, *(each.target for each in view.writable)]
    is_link = (
        is_inside(mount.source, visible)
        and not is_inside(mount.source, shadowed)
        and not any(is_inside(other, (mount.target,)) for other in others)
    )
    return "--symlink" if is_link else "--ro-bind"


def _parent_options(path: str, created: set[str]) -> list[str]:
    """Return the options that create the parent directories of a mount point.

    By default, bubblewrap makes these directories accessible only to their owner.
    """
    options = []
    end = path.find("/", 1)
    while end > 0:
        parent = path[:end]
        if parent not in created:
            created.add(parent)
            options += ["--dir", parent]
        end = path.find("/", end + 1)
    return options


def is_inside(path: str, directories: Collection[str]) -> bool:
    """Return whether the path equals one of the directories or is inside one."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)
