"""Prepare one pod's enclosure: its files, their owner, and its fields in the pod spec."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pools.runtimes.enclosure.command import FileSystemView, Mount, enclosure_command, is_inside
from pools.runtimes.enclosure.levels import IsolationLevel
from pools.runtimes.enclosure.preparation import Preparation
from pools.runtimes.shim.records import Record
from pools.runtimes.shim.secrets import VARIABLE

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
MPS_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default path, which the plugin `mps` uses
_GROUP_MAY_USE, _ALL_MAY_USE = 0o060, 0o006


@dataclass(frozen=True)
class PodFiles:
    """Files of a pod. `directory` contains its records and its `work` directory.

    `readable` and `writable` list additional mounts, whose owners do not change.
    """

    directory: Path
    work: Path
    workspace: Path
    shared: Path | None = None
    readable: tuple[Mount, ...] = ()
    writable: tuple[Mount, ...] = ()


def enclosure_fields(
    files: PodFiles, view: FileSystemView, level: IsolationLevel, uid: int, env: Mapping[str, str],
    devices: tuple[str, ...],
    *, program: str, blocks_nesting: bool, call_filter: bytes = b"", preparation: Preparation | None = None,
) -> Record:  # fmt: skip
    """Make the pod's user the owner of its files, and return the pod spec fields that describe its enclosure.

    `uid` is 0 if all pods share the user of this process. `call_filter` filters system calls, unless it is
    empty. If `preparation` is given, the pod may use a prepared enclosure.
    """
    shared, view = view, add_own_files(view, files, uid, env, devices)
    view = replace(view, readable=(*view.readable, *_write_accounts(files, uid or os.geteuid())))
    command = enclosure_command(view, level, program=program, blocks_nesting=blocks_nesting)
    fields = [*user_fields(view, uid, call_filter), *(("enclosure", argument) for argument in command)]
    if preparation:
        fields += preparation.fields(view, shared, level, program=program, blocks_nesting=blocks_nesting)
    return fields


def add_own_files(
    view: FileSystemView, files: PodFiles, uid: int, env: Mapping[str, str], devices: tuple[str, ...]
) -> FileSystemView:
    """Assign the pod's files to its user. Return the file system view with these files and the pod's devices
    added.
    """
    temporary = [(_make_directory(files.directory / name, uid), f"/{target}")
                 for name, target in (("tmp", "tmp"), ("var-tmp", "var/tmp"))]  # fmt: skip
    _change_owner(files.work, uid)
    _change_owner(files.workspace, uid)
    writable = [Mount(str(source), target) for source, target in temporary]
    writable += [Mount.at(str(path)) for path in (files.work, files.workspace, files.shared) if path]
    if _uses_mps(env):
        writable.append(Mount.at(MPS_PIPES))
    return replace(
        view, writable=(*view.writable, *writable, *files.writable), devices=devices,
        shared_memory=_shared_memory_target(files.workspace), readable=(*view.readable, *files.readable),
        secrets=env.get(VARIABLE, ""),
    )  # fmt: skip


def user_fields(view: FileSystemView, uid: int, call_filter: bytes) -> Record:
    """Return the pod spec fields that the shim needs to switch to the pod's user."""
    fields: Record = [("uid", str(uid))]
    fields += [("group", str(group)) for group in _device_groups(tuple(view.devices))]
    fields += [("seccomp", call_filter.hex())] if call_filter else []
    return [*fields, ("shared_memory", view.shared_memory)] if view.shared_memory else fields


def is_visible(path: str, view: FileSystemView, files: PodFiles) -> bool:
    """Return whether a path is inside a mount or a directory that the pod can access."""
    own = [str(each) for each in (files.work, files.workspace, files.shared) if each]
    mounts = (*view.readable, *view.writable, *files.readable, *files.writable)
    seen = [mount.target for mount in mounts]
    return is_inside(path, (*seen, *own, "/tmp", "/var/tmp", "/proc", "/dev"))  # noqa: S108


def shared_memory_path(workspace: Path) -> Path:
    return SHARED_MEMORY / f"berth-{hashlib.sha256(str(workspace).encode()).hexdigest()[:20]}"


def _shared_memory_target(workspace: Path) -> str:
    """Return the directory to mount as the pod's /dev/shm, or "" if it has no writable one."""
    return str(shared_memory_path(workspace)) if os.access(SHARED_MEMORY, os.W_OK) else ""


def _make_directory(path: Path, uid: int) -> Path:
    path.mkdir(exist_ok=True, mode=0o700)
    _change_owner(path, uid)
    return path


def _change_owner(directory: Path, uid: int) -> None:
    """Make the pod's user the owner of a directory and its files.

    A file with a hard link outside the directory keeps its owner, because the file may belong to Berth.
    """
    if not uid or directory.stat().st_uid == uid:
        return
    inside = Counter(identity for identity, _ in _hard_links(directory))
    outside = {identity for identity, links in _hard_links(directory) if links > inside[identity]}
    for _, directories, names, fd in os.fwalk(directory):
        for name in (*directories, *names):
            if not outside or _file_identity(os.stat(name, dir_fd=fd, follow_symlinks=False)) not in outside:
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    os.chown(directory, uid, uid)


def _hard_links(directory: Path) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the device, inode and link count of each file with more than one hard link."""
    for _, _, names, fd in os.fwalk(directory):
        for name in names:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if status.st_nlink > 1:
                yield _file_identity(status), status.st_nlink


def _file_identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _write_accounts(files: PodFiles, uid: int) -> tuple[Mount, Mount]:
    """Write /etc/passwd and /etc/group for the pod. Return their mounts."""
    passwd, group = files.directory / "passwd", files.directory / "group"
    passwd.write_text(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"pod:x:{uid}:{uid}:pod:{files.workspace}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    group.write_text(f"root:x:0:\npod:x:{uid}:\nnogroup:x:65534:\n")
    for path in (passwd, group):
        path.chmod(0o644)
    return Mount(str(passwd), "/etc/passwd", True), Mount(str(group), "/etc/group", True)


def _uses_mps(env: Mapping[str, str]) -> bool:
    """Return whether the pod uses the MPS daemon that the plugin `mps` started on this node."""
    if env.get("CUDA_MPS_PIPE_DIRECTORY") != MPS_PIPES:
        return False
    try:
        pipes = os.lstat(MPS_PIPES)
    except OSError:
        return False
    return stat.S_ISDIR(pipes.st_mode) and pipes.st_uid == os.geteuid()


def _device_groups(devices: tuple[str, ...]) -> list[int]:
    """Return the groups that own the device nodes and can open them."""
    modes = [Path(device).stat() for device in devices if Path(device).exists() and not Path(device).is_dir()]
    return sorted({each.st_gid for each in modes
                   if each.st_mode & _ALL_MAY_USE != _ALL_MAY_USE
                   and each.st_mode & _GROUP_MAY_USE == _GROUP_MAY_USE and each.st_gid})  # fmt: skip
