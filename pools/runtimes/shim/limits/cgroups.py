"""Control groups (version 1 or 2) for a pod's memory, CPU and number of processes.

They are inside the shim's own group in version 1, and next to it in version 2. Kernel memory, page cache and
/dev/shm count towards the limits.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False  # avoids importing `typing` and `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

MEMORY, CPU, PROCESSES = "memory", "cpu", "processes"
USAGE = "usage"  # cgroup v1 group that measures CPU time; CPU limits apply to another group
_USAGE_CONTROLLER = "cpuacct"
_ROOT = "/sys/fs/cgroup"
_OWN_GROUPS = "/proc/self/cgroup"
_CONTROLLERS = {MEMORY: "memory", CPU: "cpu", PROCESSES: "pids"}
_PERIOD = 100_000  # period in microseconds over which the CPU limit applies
_MILLI = 1000


class CannotLimit(Exception):
    """Raised if a limit cannot be enforced. The message contains the reason."""


class Cgroups:
    """Control groups of one pod. `limits` are in bytes, thousandths of a core and number of processes.

    A group with a limit of 0 only measures usage.
    """

    def __init__(self, name: str, limits: dict[str, int]) -> None:
        self.name, self.limits = name, limits
        self.paths: dict[str, str] = {}
        self._v2: set[str] = set()

    def locate(self) -> None:
        """Find the control groups' paths. Raises CannotLimit if a controller cannot be used."""
        for resource in self.limits:
            try:
                parent, is_v2 = find_parent(_CONTROLLERS[resource])
            except OSError as error:
                raise CannotLimit(f"{error.strerror}: {error.filename}") from None
            self.paths[resource] = path = f"{parent}/{self.name}"
            if is_v2:
                self._v2.add(path)
        own = _own_cgroups()
        if CPU in self.limits and _USAGE_CONTROLLER in own:
            parent = _cgroup_v1_path(_USAGE_CONTROLLER, own)
            if os.path.realpath(parent) != os.path.realpath(os.path.dirname(self.paths[CPU])):
                self.paths[USAGE] = f"{parent}/{self.name}"

    def create(self) -> None:
        """Create the control groups and set their limits. On failure, delete the groups and raise
        CannotLimit.
        """
        created = set()
        for resource, path in self.paths.items():
            try:
                if path not in created:
                    os.mkdir(path)
                    created.add(path)
                for file, value in _settings(resource, self.limits.get(resource, 0), path in self._v2):
                    _write(f"{path}/{file}", value)
            except OSError as error:
                remove(created)
                raise CannotLimit(f"{error.strerror}: {error.filename}") from None

    def join(self) -> None:
        """Move this single-threaded process, and its future children, into the control groups.

        In version 1, moving itself through `tasks` avoids a kernel delay of about 10 ms.
        """
        for path in set(self.paths.values()):
            _write(f"{path}/{'cgroup.procs' if path in self._v2 else 'tasks'}", "0")

    def memory_kills(self) -> int:
        """Return the number of the pod's processes that the kernel has killed because of the memory limit."""
        path = self.paths.get(MEMORY)
        if path is None:
            return 0
        for file in ("memory.events", "memory.oom_control"):
            for line in _read(f"{path}/{file}").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def memory_peak(self) -> int:
        """Return the peak memory usage in bytes, or 0 if the kernel does not record it."""
        path = self.paths.get(MEMORY)
        files = ("memory.peak", "memory.max_usage_in_bytes") if path else ()
        return max((int(_read(f"{path}/{file}") or 0) for file in files), default=0)

    def remove(self) -> None:
        """Delete the control groups, which must be empty."""
        remove(self.paths.values())


def pod_cgroups(directory: str, order: dict[str, str]) -> Cgroups:
    """Return the control groups that the pod spec requires. `directory` is the pod's directory."""
    limits = {name: int(order[f"limit_{name}"]) for name in _CONTROLLERS if f"limit_{name}" in order}
    return Cgroups(f"berth-{os.path.basename(directory)}-{os.getpid()}", limits)


def remove(paths: Iterable[str]) -> None:
    """Delete control groups. Wait up to a second for processes in them that are being killed."""
    remaining = set(paths)
    deadline = time.monotonic() + 1
    while remaining := {path for path in remaining if not _is_removed(path)}:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _is_removed(path: str) -> bool:
    try:
        os.rmdir(path)
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


def find_parent(controller: str) -> tuple[str, bool]:
    """Return the parent directory for the controller's groups, and whether the controller uses version 2.

    Raises OSError if the controller is not mounted.
    """
    own = _own_cgroups()
    if controller in own:
        return _cgroup_v1_path(controller, own), False
    parent = _ROOT + os.path.dirname(own.get("", "/")).rstrip("/")
    if controller not in _read(f"{parent}/cgroup.subtree_control").split():
        _write(f"{parent}/cgroup.subtree_control", f"+{controller}")
    return parent, True


def _own_cgroups() -> dict[str, str]:
    """Return the path of this process's control group for each controller. The key for version 2 is ""."""
    own = {}
    with open(_OWN_GROUPS) as file:
        for line in file.read().splitlines():
            _, names, path = line.split(":", 2)
            own.update(dict.fromkeys(names.split(","), path))
    return own


def _cgroup_v1_path(controller: str, own: dict[str, str]) -> str:
    return f"{_ROOT}/{controller}{own[controller].rstrip('/')}"


def _settings(resource: str, limit: int, is_v2: bool) -> list[tuple[str, str]]:
    """Return the (cgroup file, value) pairs that set the limit.

    Swap is disabled if the kernel accounts for swap.
    """
    if limit == 0:
        return []
    if resource == PROCESSES:
        return [("pids.max", str(limit))]
    if resource == CPU:
        quota = max(limit * _PERIOD // _MILLI, 1000)
        if is_v2:
            return [("cpu.max", f"{quota} {_PERIOD}")]
        return [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    if is_v2:
        return [("memory.max", str(limit)), ("memory.swap.max", "0"), ("memory.oom.group", "0")]
    return [("memory.limit_in_bytes", str(limit)), ("memory.memsw.limit_in_bytes", str(limit))]


def _write(path: str, value: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(value)
    except FileNotFoundError:
        if "swap" not in path and "memsw" not in path:
            raise
    except OSError as error:
        error.filename = path
        raise


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""
