"""Clean up the processes, control groups and records that remain after podman or conmon was killed.

The control groups can be found without podman, because their paths contain the container's name.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import time
from collections.abc import Iterator

from pools.runtimes.shim.processes import process_ids, send_signal

_GROUPS = "/sys/fs/cgroup"
_RUNTIMES = ("/run/runc", "/run/crun")
_PATIENCE = 10.0  # maximum seconds to wait for processes and groups to end
_PAUSE = 0.01
# podman or conmon may fork and exit during a scan, so the scan misses the child.
_EMPTY_SCANS = 3


def kill_processes(name: str) -> None:
    """Kill all processes of the container, including podman and conmon, and wait for a limited time."""
    deadline = time.monotonic() + _PATIENCE
    empty_scans = 0
    while empty_scans < _EMPTY_SCANS and time.monotonic() < deadline:
        pids = _processes(name)
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        empty_scans = 0 if pids else empty_scans + 1
        time.sleep(_PAUSE)


def remove_container_cgroups(name: str) -> None:
    """Remove the control groups of a container that has exited, and the OCI runtime's record of it."""
    for group in _outer_cgroups(name):
        for directory, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:  # a process that is being killed is still in the group
                continue
            _remove_record(os.path.basename(directory).partition("libpod-")[2])


def _remove_record(container: str) -> None:
    """Remove the OCI runtime's record of the container. Do nothing if the ID is empty."""
    for runtime in _RUNTIMES if container else ():
        for directory, _, names in os.walk(f"{runtime}/{container}", topdown=False):
            for name in names:
                os.unlink(f"{directory}/{name}")
            os.rmdir(directory)


def _processes(name: str) -> set[int]:
    pids = {pid for pid in process_ids() if _belongs_to_container(pid, name)}
    for group in _outer_cgroups(name):
        for directory, _, files in os.walk(group):
            if "cgroup.procs" in files:
                pids.update(_read_pids(f"{directory}/cgroup.procs"))
    return pids


def _read_pids(path: str) -> list[int]:
    try:
        with open(path) as file:
            return [int(line) for line in file.read().split()]
    except OSError:
        return []


def _belongs_to_container(pid: int, name: str) -> bool:
    """Return whether the process is the container's conmon or `podman run`."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return False
    program = os.path.basename(arguments[0])
    return (program == "conmon" and name in arguments) or (
        program == "podman" and arguments[1] == "run" and f"--name={name}" in arguments
    )


def _outer_cgroups(name: str) -> Iterator[str]:
    """Yield the container's outer control groups: one in version 2, one per controller in version 1."""
    for base in (_GROUPS, *(entry.path for entry in os.scandir(_GROUPS) if entry.is_dir())):
        if os.path.isdir(f"{base}/{name}"):
            yield f"{base}/{name}"
