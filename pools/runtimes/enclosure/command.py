"""Build the bubblewrap command line that encloses a pod. This module does not access the machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from pools.runtimes.enclosure.levels import IsolationLevel

# This program keeps the namespaces alive until the shim closes its standard input.
HOLDER = "/bin/cat"
# The bubblewrap option that copies a file. The shim replaces the source path with an open descriptor.
COPY = "--file"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - inside the enclosure
# Directories that are created for each pod. No other pod can have placed symbolic links in them.
_EMPTY_AT_START = ("/tmp", "/var/tmp")  # noqa: S108 - inside the enclosure
_END = ("--chdir", "/", "--", HOLDER)


@dataclass(frozen=True)
class Mount:
    """Bind mount of the machine's path `source` at `target` in a pod.

    If `is_copied` is set, the pod gets a copy of the file instead, which is faster than a mount.
    """

    source: str
    target: str
    is_copied: bool = False

    @classmethod
    def at(cls, path: str) -> Mount:
        return cls(path, path)


@dataclass(frozen=True)
class FileSystemView:
    """Part of the machine's file system that a pod sees.

    If several entries cover a path, the longest one applies. `links` are symbolic links in the root
    directory, such as /bin. `readable` mounts are read-only, and `hidden` directories are empty.
    `shared_memory` is the workload's shared /dev/shm, or empty. `devices` are device nodes. `secrets` is the
    path of a tmpfs for secret files, or empty.
    """

    links: tuple[tuple[str, str], ...] = ()
    readable: tuple[Mount, ...] = ()
    hidden: tuple[str, ...] = ()
    writable: tuple[Mount, ...] = ()
    devices: tuple[str, ...] = ()
    shared_memory: str = ""
    secrets: str = ""


def enclosure_command(
    view: FileSystemView, level: IsolationLevel, *, program: str = "bwrap", blocks_nesting: bool = True
) -> list[str]:
    """Return the bubblewrap command line for an enclosure that lasts until its stdin is closed.

    `blocks_nesting` forbids nested user namespaces and requires bubblewrap 0.8.
    """
    argv = _base_options(view, level, program, blocks_nesting)
    directories: set[str] = set()
    for device in view.devices:
        argv += [*_parent_options(device, directories), "--dev-bind", device, device]
    if view.shared_memory:
        argv += ["--bind", view.shared_memory, _SHARED_MEMORY]
    else:
        argv += ["--perms", "1777", "--tmpfs", _SHARED_MEMORY]
    argv += _mount_options(_mounts(view), directories)
    if view.secrets:
        argv += [*_parent_options(view.secrets, directories), "--perms", "0755", "--tmpfs", view.secrets]
    for path in _read_only_paths(view):
        argv += ["--remount-ro", path]
    return [*argv, *_END]


@lru_cache(maxsize=2)
def prepared_command(
    shared: FileSystemView, level: IsolationLevel, *, program: str, blocks_nesting: bool = True
) -> tuple[str, ...]:
    """Return the bubblewrap command line for an enclosure without the pod's own mounts.

    `shared` is the part of the file system that all pods see. The shim adds the pod's mounts later.
    """
    argv = _base_options(shared, level, program, blocks_nesting)
    return (*argv, *_mount_options(_mounts(shared), set()), *_END)


def without_temporary_paths(view: FileSystemView) -> FileSystemView:
    """Return the view without mounts in /tmp and /var/tmp, where each pod has its own directories."""
    return replace(
        view,
        readable=tuple(each for each in view.readable if not is_inside(each.target, _EMPTY_AT_START)),
        writable=tuple(each for each in view.writable if not is_inside(each.target, _EMPTY_AT_START)),
        hidden=tuple(path for path in view.hidden if not is_inside(path, _EMPTY_AT_START)),
    )


def own_mounts(view: FileSystemView, shared: FileSystemView) -> list[str] | None:
    """Return the mounts that turn an enclosure prepared for `shared` into one for `view`.

    Each consists of bubblewrap's option, the source and the target. Return None if the result would differ
    from a new enclosure, or if another pod could have placed symbolic links in a target's path.
    """
    of_all, of_shared = _mounts(view), dict.fromkeys(_mounts(shared))
    own = [mount for mount in of_all if mount not in of_shared]
    targets = [path for _, path, _ in own]
    if not view.shared_memory or len(own) + len(of_shared) != len(of_all):
        return None
    if any(is_inside(path, targets) for _, path, _ in of_shared):
        return None
    reachable = [path for path in targets if path not in _EMPTY_AT_START]
    if any(is_inside(path, [each for each in reachable if each != path]) for path in targets):
        return None
    mounts = [("--dev-bind", device, device) for device in view.devices]
    mounts += [("--bind", _SHARED_MEMORY, view.shared_memory), *own]
    mounts += [("--tmpfs", view.secrets, "")] if view.secrets else []
    mounts += [("--remount-ro", path, "") for path in _read_only_paths(view)]
    return [text for option, path, source in mounts for text in (option, source, path)]


def _base_options(
    view: FileSystemView, level: IsolationLevel, program: str, blocks_nesting: bool
) -> list[str]:
    argv = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if level is IsolationLevel.NAMESPACES:
        argv += ["--unshare-user", *(["--disable-userns"] if blocks_nesting else [])]
    argv += ["--cap-drop", "ALL"]
    for destination, path in view.links:
        argv += ["--symlink", destination, path]
    return [*argv, "--proc", "/proc", "--dev", "/dev"]


@lru_cache(maxsize=8)  # cached, because the command and each pod's own mounts need the result
def _mounts(view: FileSystemView) -> tuple[tuple[str, str, str], ...]:
    """Return the option, target and source of each mount, parents first."""
    mounts = [(_readable_option(mount, view), mount.target, mount.source) for mount in view.readable]
    mounts += [("--bind", mount.target, mount.source) for mount in view.writable]
    mounts += [("--tmpfs", path, "") for path in view.hidden]
    return tuple(sorted(mounts, key=lambda mount: mount[1].rstrip("/").count("/")))


def _mount_options(mounts: Iterable[tuple[str, str, str]], directories: set[str]) -> list[str]:
    options = []
    for option, path, source in mounts:
        mode = ["--perms", "0644"] if option == COPY else []
        options += [*_parent_options(path, directories), *mode, option, *([source] if source else []), path]
    return options


def _read_only_paths(view: FileSystemView) -> tuple[str, ...]:
    """Return the paths that are read-only once everything is mounted."""
    return ("/dev", *view.hidden, "/")


def _readable_option(mount: Mount, view: FileSystemView) -> str:
    if mount.source == mount.target and not mount.is_copied:
        return "--ro-bind"
    others = [each.target for each in (*view.readable, *view.writable) if each is not mount]
    others += view.hidden
    if is_inside(mount.target, others):
        return "--ro-bind"  # a link or copy cannot be created inside another mount
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

    Without these options, only the owner could access the directories.
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
    """Return whether the path is one of the directories, or is inside one of them."""
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)
