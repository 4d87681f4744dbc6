"""Select the parts of this machine that pods may see: the system, Python and Berth's code."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from pools.runtimes.enclosure.command import FileSystemView, Mount, is_inside
from pools.runtimes.enclosure.levels import PATHS_VARIABLE, WRITABLE_PATHS_VARIABLE

_ROOT_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# /proc and /dev are mounted separately. Pods cannot see /run, /var, /home and /root and their sockets.
_SYSTEM = (
    "/usr", "/opt", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module",
    "/etc/alternatives", "/etc/crypto-policies", "/etc/fonts", "/etc/hostname", "/etc/hosts",
    "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/OpenCL",
    "/etc/os-release", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/profile", "/etc/protocols",
    "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
    "/etc/vulkan",
)  # fmt: skip
# Small files that seldom change are copied. /etc/hosts and others are mounted, so that changes reach pods.
_COPIED = frozenset((
    "/etc/hostname", "/etc/ld.so.cache", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/profile",
    "/etc/protocols", "/etc/services", "/etc/ssl/openssl.cnf", "/etc/timezone",
))  # fmt: skip
_COPY_MAX = 2**20  # bytes
_JAVA = "java"  # prefix of Java's directories in /etc; the version follows
_COVERED = ("/usr", "/etc/ssl/certs")  # mounts already cover the paths inside these directories
# Berth's code in a checkout. The checkout itself is not mounted, because it may contain Berth's state.
_CODE = ("platform", "pools", "projects", "scheduler", "examples")
# Inherited environment variables with paths that programs need.
_PATH_VARIABLES = ("LD_LIBRARY_PATH", "CUDA_HOME", "SSL_CERT_FILE")


def machine_view(state: Collection[Path], environ: Mapping[str, str] = os.environ) -> FileSystemView:
    """Return the view that all pods share. Pods cannot see Berth's own directories, which `state` lists."""
    links = []
    declared = _declared_paths(environ, (PATHS_VARIABLE, *_PATH_VARIABLES))
    further = [path for path in (*_program_paths(), *declared) if not is_inside(path, _COVERED)]
    java = sorted(f"/etc/{name}" for name in os.listdir("/etc") if name.startswith(_JAVA))  # noqa: PTH208
    targets: dict[str, None] = dict.fromkeys((*_SYSTEM, *java, *further))
    for name in _ROOT_LINKS:
        path = Path(f"/{name}")
        if path.is_symlink():
            links.append((str(path.readlink()), str(path)))
        else:
            targets[str(path)] = None
    readable = _mounts(targets)
    writable = _mounts(_declared_paths(environ, (WRITABLE_PATHS_VARIABLE,)))
    mounts = (*readable, *writable)
    hidden = dict.fromkeys(path for own in state for path in _visible_paths(os.path.realpath(own), mounts))
    return FileSystemView(tuple(links), readable, tuple(hidden), writable)


def declared_paths_view(state: Collection[Path], environ: Mapping[str, str] = os.environ) -> FileSystemView:
    """Return the part of the file system that the operator has opened to pods.

    Paths in `state` are hidden.
    """
    readable = _mounts(_declared_paths(environ, (PATHS_VARIABLE,)))
    writable = _mounts(_declared_paths(environ, (WRITABLE_PATHS_VARIABLE,)))
    mounts = (*readable, *writable)
    hidden = dict.fromkeys(path for own in state for path in _visible_paths(os.path.realpath(own), mounts))
    return FileSystemView((), readable, tuple(hidden), writable)


def _mounts(paths: Iterable[str]) -> tuple[Mount, ...]:
    parents: dict[str, str] = {}
    existing = [(_real_path(path, parents), path) for path in paths if os.access(path, os.F_OK)]
    return tuple(Mount(source, path, path in _COPIED and _is_copyable(source)) for source, path in existing)


def _real_path(path: str, parents: dict[str, str]) -> str:
    """Resolve all symbolic links. `parents` caches the real paths of parent directories."""
    parent, name = os.path.split(path)
    if name in ("", ".", "..") or os.path.islink(path):  # noqa: PTH114 - faster, and called for each pod
        return os.path.realpath(path)
    if parent not in parents:
        parents[parent] = os.path.realpath(parent)
    return f"{parents[parent].rstrip('/')}/{name}"


def _is_copyable(path: str) -> bool:
    status = Path(path).stat()
    is_public = stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IROTH
    return bool(is_public) and status.st_size <= _COPY_MAX


def _visible_paths(path: str, mounts: Iterable[Mount]) -> Iterator[str]:
    """Yield the paths inside the pod at which `mounts` make the machine's `path` visible."""
    for mount in mounts:
        if is_inside(path, (mount.source,)):
            yield mount.target.rstrip("/") + path[len(mount.source.rstrip("/")) :]


def environment_mounts(environment: Path) -> tuple[Mount, ...]:
    """Return the mounts that make the environment and its base Python installation visible."""
    mounts = [Mount(os.path.realpath(environment), str(environment))]
    try:
        lines = (environment / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return tuple(mounts)
    settings = dict(line.split(" = ", 1) for line in lines if " = " in line)
    base = str(Path(settings.get("home", "/")).parent)
    if base != "/" and not is_inside(base, ("/usr",)):
        mounts += [Mount(os.path.realpath(base), path) for path in {base, os.path.realpath(base)}]
    return tuple(mounts)


def _program_paths() -> Iterator[str]:
    """Yield the paths of Berth's Python installation and source code."""
    for prefix in (sys.prefix, sys.base_prefix):
        yield prefix
        yield os.path.realpath(prefix)
    source = Path(__file__).resolve().parents[3]
    if not is_inside(str(source), (sys.prefix, sys.base_prefix)):
        yield from (str(source / name) for name in _CODE)


def _declared_paths(environ: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for path in environ.get(name, "").split(":"):
            if path.startswith("/") and path.strip("/"):
                yield path.rstrip("/")
