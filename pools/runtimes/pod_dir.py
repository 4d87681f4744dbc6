"""Read and write a local pod's directory, which contains its spec, its shim's lock and its exit record."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from pools.runtimes.base import PodCause, PodReport, PodSpec, PodState, StopNotice
from pools.runtimes.files.base import FilesNotFound
from pools.runtimes.images.store import remove_container
from pools.runtimes.shim.channels.listener import SOCKET
from pools.runtimes.shim.enclosure.shared_memory import remove_unused
from pools.runtimes.shim.limits.cgroups import remove as remove_cgroups
from pools.runtimes.shim.processes import boot_id, process_ids, send_signal
from pools.runtimes.shim.records import Record, read_fields, read_record, sync_directory, write_record
from pools.runtimes.shim.secrets import Secrets

MEMORY = Path("/dev/shm")  # noqa: S108 - a tmpfs; its directories for secrets are private
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FLOCK = "hhqqi4x"  # struct flock: short type, short whence, off_t start, off_t len, pid_t


class PodDir:
    """Directory with a pod's records.

    `stop` and `exit` are durable, and `status` is valid until a reboot. The pod spec, `order`, is durable
    before the command runs; after a power failure, it may be missing or empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def exists(self) -> bool:
        return self.path.is_dir()

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def work_directory(self) -> Path:
        return self.path / "work"

    @property
    def secrets(self) -> Secrets:
        """Secrets of the pod, on a tmpfs if this machine has one, otherwise in this directory."""
        if os.access(MEMORY, os.W_OK):
            return Secrets(str(MEMORY / f"{secrets_prefix(self.path.parent)}{self.path.name}"))
        return Secrets(str(self.path / "secrets"))

    def require_ended(self) -> Path:
        """Return this directory's path. Raises FilesNotFound if the pod is live or its record was deleted."""
        if not self.has_record("exit"):
            raise FilesNotFound("the pod's files no longer exist")
        return self.path

    def retained_directories(self, workspace: Path) -> dict[str, tuple[str, str]]:
        """Return the parent and name of each directory that the pod could write to. Raises FilesNotFound."""
        own = {"pod": "work", "tmp": "tmp", "var-tmp": "var-tmp"}
        directories = {label: (str(self.require_ended()), name) for label, name in own.items()}
        return {**directories, "workspace": (str(workspace.parent), workspace.name)}

    def create(self, durable: bool = True) -> None:
        if not self.exists:
            self.work_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if durable:
                sync_directory(str(self.path.parent))

    def has_record(self, record: str) -> bool:
        return (self.path / record).exists()

    def read(self, record: str) -> dict[str, str] | None:
        return read_record(str(self.path / record))

    def write(self, record: str, fields: Record) -> None:
        write_record(str(self.path / record), fields)

    def write_pod_spec(self, spec: PodSpec, env: dict[str, str], working_dir: Path, extra: Record) -> None:
        fields: Record = [
            ("boot", boot_id()),
            ("ordered_at", repr(time.time())),
            ("name", spec.name),
            ("instance", spec.instance_id),
            ("grace", str(spec.grace_seconds)),
            ("working_dir", str(working_dir)),
            *extra,
        ]
        fields += [("arg", argument) for argument in spec.command]
        fields += [("env", f"{name}={value}") for name, value in sorted(env.items())]
        write_record(str(self.path / "order"), fields, durable=False)

    def write_registry_auth(self, auth: str) -> None:
        """Write the registry credentials for the image pull.

        The file is written even without credentials, because podman would otherwise use those of its user.
        The shim deletes the file after the pull.
        """
        draft = self.path / f"auth.{os.getpid()}.new"
        draft.touch(mode=0o600)
        draft.write_text(auth or "{}")
        draft.rename(self.path / "auth.json")

    def write_stop_request(self, grace_seconds: int, notice: StopNotice | None = None) -> None:
        """Record a request to stop the pod.

        The request with the earliest deadline applies, including its lead time.
        """
        before = self.read("stop")
        lead = notice.lead_seconds if notice else 0
        if before is not None and int(before["grace"]) + int(before.get("lead", "0")) <= grace_seconds + lead:
            return
        fields: Record = [("grace", str(grace_seconds)), ("at", repr(time.time()))]
        if notice:
            fields += [("signal", str(notice.signal)), ("lead", str(lead))]
        self.write("stop", fields)

    def notify_shim(self) -> None:
        """Notify the shim of a new stop record, if a shim is running."""
        try:
            fd = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # the pipe does not exist yet or has no reader
            return
        try:
            os.write(fd, b"!")
        except BlockingIOError:
            pass
        finally:
            os.close(fd)

    def connect_channel(self) -> socket.socket:
        """Return a socket connected to a new channel of the pod. Raises OSError."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:  # connect through a descriptor, because socket paths are limited to 107 bytes
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            connection.close()
            raise
        finally:
            os.close(directory)
        return connection

    def has_shim(self) -> bool:
        """Return whether a shim is running for the pod, without taking the lock that a new shim may need."""
        return self.shim_pid() is not None

    def shim_pid(self) -> int | None:
        """Return the shim's process ID, 0 if it is in a different PID namespace, or None if there is no
        shim.
        """
        try:
            fd = os.open(self.path / "lock", os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, request))
        finally:
            os.close(fd)
        return None if kind == fcntl.F_UNLCK else max(int(pid), 0)

    @contextmanager
    def hold_lock(self) -> Iterator[bool]:
        """Hold the shim's lock, so that no shim can start. Yield False if a shim already holds it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def finish(self, cause: PodCause, message: str) -> None:
        """After the shim has exited, kill the pod's remaining processes and write the exit record."""
        with self.hold_lock() as is_locked:
            if not is_locked or self.has_record("exit"):
                return
            self._kill_leftovers()
            self.secrets.delete()
            fields: Record = [("cause", cause), ("ended_at", repr(time.time())), ("message", message)]
            status = self.read("status")
            if status is not None:
                fields.append(("started_at", status["started_at"]))
            self.write("exit", fields)

    def _kill_leftovers(self) -> None:
        """Kill the pod's remaining processes, and remove what its shim left behind."""
        mark = f"BERTH_POD_DIR={self.work_directory}".encode()
        for pid in process_ids():
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            if mark in environment.split(b"\0"):
                send_signal(pid, signal.SIGKILL)
        self._remove_container()
        self._remove_leftovers()

    def _remove_container(self) -> None:
        remove_container(str(self.path))
        (self.path / "auth.json").unlink(missing_ok=True)
        shutil.rmtree(self.path / "podman", ignore_errors=True)

    def _remove_leftovers(self) -> None:
        remove_cgroups(path for _, path in read_fields(str(self.path / "cgroups")) or ())
        spec = self.read("order") or {}
        if "shared_memory" in spec:
            remove_unused(spec["shared_memory"])

    def remove(self) -> None:
        """Rename the directory, so that it disappears atomically, and then delete its files."""
        self._remove_leftovers()
        self.secrets.delete()
        remove_container(str(self.path))
        removed_path = self.path.with_name(f".{self.path.name}.{os.getpid()}.gone")
        try:
            self.path.rename(removed_path)
        except FileNotFoundError:
            return
        shutil.rmtree(removed_path, ignore_errors=True)


def secrets_prefix(pods: Path) -> str:
    """Return the name prefix of the pods' secrets directories. `pods` is the parent of the pods' own
    directories.
    """
    return f"berth-secrets-{hashlib.sha256(str(pods).encode()).hexdigest()[:20]}-"


def delete_stray_secrets(pods: Path) -> None:
    """Delete the secrets of pods that no longer have a directory."""
    prefix = secrets_prefix(pods)
    for entry in MEMORY.glob(f"{prefix}*"):
        if not (pods / entry.name.removeprefix(prefix)).exists():
            Secrets(str(entry)).delete()


def exit_report(end: dict[str, str]) -> PodReport:
    code, number = end.get("exit_code"), end.get("signal")
    return PodReport(
        state=PodState.EXITED,
        exit_code=None if code is None else int(code),
        signal=None if number is None else int(number),
        started_at=parse_timestamp(end.get("started_at")),
        ended_at=parse_timestamp(end.get("ended_at")),
        cause=PodCause(end["cause"]),
        message=end["message"],
        memory_peak_mib=int(end["memory_peak_mib"]) if end.get("memory_peak_mib") else None,
    )


def parse_timestamp(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(float(text), timezone.utc)


def validate_name(name: str) -> str:
    """Return the name. Raises ValueError if the name is not a single path component."""
    if not NAME.fullmatch(name):
        raise ValueError(f"not a valid pod or workspace name: {name!r}")
    return name
