"""Start a pod's command once, and stop the command and all its descendants."""

from __future__ import annotations

# `signal` is not imported: importing it takes half as long as starting Python itself.
import _signal as signal  # type: ignore[import-not-found]
import os
import time

from pools.runtimes.shim.channels.listener import Channels
from pools.runtimes.shim.enclosure.namespaces import Namespaces
from pools.runtimes.shim.enclosure.prepared import PreparedEnclosure
from pools.runtimes.shim.enclosure.shared_memory import SharedMemory
from pools.runtimes.shim.entry import LIMITS, PID_DIGITS, PodEntry
from pools.runtimes.shim.interrupts import Interrupts
from pools.runtimes.shim.limits.cgroups import MEMORY, CannotLimit, pod_cgroups
from pools.runtimes.shim.processes import (
    current_descendants,
    descendants,
    handles_signal,
    is_running,
    process_group,
    send_signal,
    start_time,
)
from pools.runtimes.shim.records import Record, sync, sync_directory, write_record
from pools.runtimes.shim.secrets import VARIABLE, Secrets

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from ctypes import CDLL

MIB = 1024 * 1024
_PR_SET_CHILD_SUBREAPER = 36


class Pod:
    """Running pod: its command and all descendants.

    Orphans become children of this process or of PID 1 in their namespace.
    """

    def __init__(
        self, directory: str, order: Record, interrupts: Interrupts, prepared: PreparedEnclosure | None = None
    ) -> None:
        self.directory = directory
        self._order_fields, self.order = order, dict(order)
        self.command = [value for key, value in order if key == "arg"]
        self.env = dict(value.split("=", 1) for key, value in order if key == "env")
        self.namespaces = _namespaces(directory, order, interrupts, prepared)
        self.interrupts = interrupts
        self.cgroups = pod_cgroups(directory, self.order)
        self.secrets = Secrets(self.order.get("secrets", ""))
        self.secret_names: tuple[str, ...] = ()  # names of environment variables that contain secrets
        self.helpers: set[int] = set()  # child processes of the shim that do not belong to the pod
        self.channels = Channels(self)
        self.pid = 0
        self.started_at = 0.0
        self.wait_status: int | None = None
        self.childless = False
        self.term_at: float | None = None  # time at which SIGTERM is due, or None
        self.deadline: float | None = None
        self.cause = ""

    def start(self) -> str:
        """Start the command, but let it run only after its process ID is recorded. Return an error
        message or "".
        """
        failure = (
            self.secrets.read_and_delete()
            or self._download_code()
            or self._fetch_volumes()
            or self._start_namespaces()
        )
        import ctypes  # imported while bubblewrap starts, because the import takes milliseconds

        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        failure = failure or self._create_cgroups()
        if failure:
            return failure
        go_read, go_write = os.pipe()
        failed_read, failed_write = os.pipe()
        born_read, born_write = os.pipe()
        shim = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(go_write)
            self._run_command(libc, shim, go_read, failed_write, born_write)
        for fd in (failed_write, born_write):
            os.close(fd)
        # Overlap the sync with the slow step: entering a prepared enclosure, or building a new one.
        if self.namespaces and self.namespaces.is_built:
            failure = self._admit_to_namespaces(go_write) or self._sync_pod_spec()
        else:
            failure = self._sync_pod_spec() or self._admit_to_namespaces(go_write)
        if not failure:
            self.pid = int(os.read(born_read, 32) or 0)
            if child != self.pid:
                os.waitpid(child, 0)
        if self.pid:
            self.started_at = time.time()
            self._write_status("starting")
            os.write(go_write, b"g")
        for fd in (born_read, go_read, go_write):
            os.close(fd)
        with open(failed_read, "rb") as file:
            failure = failure or file.read().decode("utf-8", "replace")
        self.secret_names = tuple(self.secrets.env)
        self.secrets.forget()
        if not self.pid:
            return failure or "the command could not be started: the process that starts it was killed"
        if not failure:
            self._write_status("running")
        return failure

    def _download_code(self) -> str:
        if "code_url" not in self.order:
            return ""
        from pools.runtimes.shim.code import Download  # This import is slow, and most pods do not need it.

        download = Download(self.directory, self.order, self.secrets.download, self.interrupts)
        failure = download.run()
        self.cause = download.cause
        return failure

    def _fetch_volumes(self) -> str:
        """Fetch the pod's S3 volumes. Return an error message or ""."""
        if "volumes_url" not in self.order:
            return ""
        # slow import that most pods do not need
        from pools.runtimes.shim.transfers.volumes import fetch_volumes

        failure, self.cause = fetch_volumes(
            self.directory, self._order_fields, self.secrets.download, self.interrupts
        )
        return failure

    def _start_namespaces(self) -> str:
        """Start building the pod's namespaces or container. Return an error message or ""."""
        if self.namespaces is None:
            return ""
        failure = self.namespaces.launch()
        self.cause = self.namespaces.cause
        self.command, self.env = self.namespaces.complete(self.command, self.env)
        return failure

    def _admit_to_namespaces(self, go_fd: int) -> str:
        """Let the forked process enter the namespaces, if any. Return an error message or ""."""
        if self.namespaces is None:
            return ""
        failure = self.namespaces.wait()
        if not failure:
            os.write(go_fd, str(self.namespaces.init).encode().zfill(PID_DIGITS))
        return failure

    def _create_cgroups(self) -> str:
        """Create the pod's control groups. Return an error message or "".

        Their paths are recorded first, so that the groups can be removed if this process is killed.
        """
        try:
            self.cgroups.locate()
            if self.cgroups.paths:
                groups = list(self.cgroups.paths.items())
                write_record(f"{self.directory}/cgroups", groups, durable=False)
            self.cgroups.create()
        except CannotLimit as error:
            return f"{LIMITS}: {error}"
        return ""

    def _sync_pod_spec(self) -> str:
        """Sync the pod spec to disk, so that the pod never runs again after a power failure."""
        try:
            sync(f"{self.directory}/order")
            sync_directory(self.directory)
            sync_directory(os.path.dirname(self.directory))
        except OSError as error:
            return f"the pod spec could not be stored: {error.strerror}"
        return ""

    def describe_memory_kills(self) -> str:
        """Describe processes that the kernel killed for lack of memory. Return "" if there are none."""
        kills = self.cgroups.memory_kills()
        if not kills:
            return ""
        if not self.cgroups.limits[MEMORY]:
            peak = f"peak of the pod {self.cgroups.memory_peak() // MIB} MiB"
            return f"the node ran out of memory and killed processes of the pod: {peak}"
        numbers = self.describe_memory()
        if self.was_killed_for_memory():
            return f"killed at its memory limit: {numbers}"
        processes = "1 process" if kills == 1 else f"{kills} processes"
        return f"{processes} of the pod had been killed at its memory limit: {numbers}"

    def describe_memory(self) -> str:
        """Return the pod's memory limit and peak memory usage as text."""
        limit, peak = self.cgroups.limits[MEMORY] // MIB, self.cgroups.memory_peak() // MIB
        return f"limit {limit} MiB, peak {peak} MiB"

    def was_killed_for_memory(self) -> bool:
        """Return whether the kernel killed the command for exceeding the memory limit.

        Exit code 137 also counts: a shell returns it if its child was killed.
        """
        if self.wait_status is None or not self.cgroups.memory_kills():
            return False
        return os.waitstatus_to_exitcode(self.wait_status) in (-signal.SIGKILL, 128 + signal.SIGKILL)

    def _run_command(self, libc: CDLL, shim: int, go_fd: int, failure_fd: int, born_fd: int) -> None:
        """Replace this process, or a child of it inside the namespaces, with the command."""
        entry = PodEntry(self, libc, shim)
        try:
            entry.subject = "the log"
            self._open_output()
            entry.join(go_fd, born_fd)
            entry.subject = "the pod's secrets"
            self.secrets.write_files(
                self.env.get(VARIABLE, ""), self.namespaces.uid if self.namespaces else 0
            )
            entry.drop_privileges()
            entry.execute(self.command, {**self.env, **self.secrets.env})
        except BaseException as error:  # the forked child must exit here, even after an unexpected error
            entry.report_failure(failure_fd, error)
        os._exit(127)

    def _open_output(self) -> None:
        """Redirect output to the log. The pod's user owns it, because programs may reopen /dev/stderr."""
        log = os.open(f"{self.directory}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self.namespaces and self.namespaces.uid:
            os.fchown(log, self.namespaces.uid, self.namespaces.uid)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)

    def _write_status(self, state: str) -> None:
        record = [
            ("state", state),
            ("pid", str(self.pid)),
            ("start", start_time(self.pid)),
            ("started_at", repr(self.started_at)),
        ]
        write_record(f"{self.directory}/status", record, durable=False)

    def reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.wait_status = status
                self.channels.record_exit(pid)
        except ChildProcessError:
            self.childless = True

    @property
    def is_over(self) -> bool:
        """Whether to stop waiting for the pod.

        Normally, this is true once the command has exited. If the pod is being stopped, all of its processes
        must have exited, or the grace period must be over.
        """
        if self.deadline is None:
            return self.wait_status is not None
        return time.monotonic() >= self.deadline or (self.wait_status is not None and not self.processes())

    def processes(self) -> list[int]:
        """Return the IDs of the pod's running processes, parents first.

        Processes that users started in channels are excluded.
        """
        of_channels = self.channels.processes()
        return [pid for pid in self._all_processes() if pid not in of_channels]

    def _all_processes(self) -> list[int]:
        """Return the processes of the pod and its channels, parents first."""
        others = {*(self.namespaces.pids if self.namespaces else ()), *self.helpers}
        return [pid for pid in descendants(os.getpid()) if pid not in others and is_running(pid)]

    def leftover_process_descriptor(self) -> int | None:
        """Return a descriptor that becomes readable when one of the command's leftover processes exits."""
        if self.deadline is None or self.wait_status is None:
            return None
        for pid in self.processes():
            try:
                return os.pidfd_open(pid)
            except ProcessLookupError:
                continue
        return None

    @property
    def next_signal_at(self) -> float | None:
        """Time of the next stop signal (SIGTERM or SIGKILL), or None if the pod is not being stopped."""
        return self.deadline if self.term_at is None else self.term_at

    def stop(self, cause: str, grace: float, number: int = 0, lead: float = 0.0) -> None:
        """Send SIGTERM to all processes after the lead time, and SIGKILL after the grace period.

        If there is a lead time, the first call sends the signal `number` immediately to the processes that
        handle it. Later calls can bring SIGTERM and SIGKILL forward, but never delay them.
        """
        term_at = time.monotonic() + max(lead, 0.0)
        deadline = term_at + max(grace, 0.0)
        if self.deadline is None:
            self.cause, self.term_at, self.deadline = cause, term_at, deadline
            if lead > 0:
                self._send_notice(number)
        else:
            self.deadline = min(self.deadline, deadline)
            if self.term_at is not None:
                self.term_at = min(self.term_at, term_at)
        self.terminate_after_lead_time()

    def _send_notice(self, number: int) -> None:
        """Send a signal only to processes that handle it, because it would kill all others."""
        for pid in self.processes():
            if handles_signal(pid, number):
                send_signal(pid, number)

    def terminate_after_lead_time(self) -> None:
        """Send SIGTERM to all processes once the lead time is over or the command has ended."""
        if self.term_at is None or self.deadline is None:
            return
        now = time.monotonic()
        if now < self.term_at:
            if self.wait_status is None:
                return
            self.deadline -= self.term_at - now
        self.term_at = None
        strays = [pid for pid in self.processes() if process_group(pid) not in (self.pid, None)]
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        for pid in strays:
            send_signal(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes, including new ones, and wait until they are gone.

        A process in an uninterruptible state still occupies its devices.
        """
        self.channels.close()
        if self.namespaces and self.namespaces.is_container:
            self._kill_own_processes()
            self.namespaces.end()
        pause = 0.001
        self.reap()
        while not self.childless:
            for pid in current_descendants(os.getpid()):
                send_signal(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
            self.reap()
        if self.namespaces:
            self.namespaces.close()
        self.secrets.delete()

    def _kill_own_processes(self) -> None:
        """Kill and reap all of the shim's descendants, because the container cannot end while they run.

        This includes the orphans of channels and relays that have not ended yet.
        """
        pause = 0.001
        while pids := self._all_processes():
            for pid in pids:
                send_signal(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
        self.reap()


def _namespaces(
    directory: str, order: Record, interrupts: Interrupts, prepared: PreparedEnclosure | None
) -> Namespaces | None:
    builder = prepared.take(order) if prepared else None
    command = [value for key, value in order if key == "enclosure"]
    fields = dict(order)
    if not command and "image" not in fields:
        return None
    uid, path = int(fields["uid"]), fields.get("shared_memory")
    groups = [int(value) for key, value in order if key == "group"]
    memory = SharedMemory(path, uid) if path else None
    call_filter = bytes.fromhex(fields.get("seccomp", ""))
    if "image" in fields:
        from pools.runtimes.images.container import Container  # imported only for pods with an image

        return Container(directory, order, uid, groups, memory, call_filter, interrupts)
    own = [value for key, value in order if key == "own_mount"] if builder else []
    return Namespaces(command, uid, groups, f"{directory}/enclosure.err", memory, call_filter, builder, own)
