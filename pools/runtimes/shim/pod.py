"""Start a pod's command once, and end it with all descendants."""

# `signal` wraps these numbers in enums, and importing it takes half as long as Python takes to start.
import _signal as signal  # type: ignore[import-not-found]
import os
import time

from pools.runtimes.shim.processes import descendants, process_group, send_signal, start_time
from pools.runtimes.shim.records import Record, write_record

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Pod:
    """The command and its descendants. Orphans are reparented to this process."""

    def __init__(self, directory: str, order: Record) -> None:
        self.directory = directory
        self.order = dict(order)
        self.command = [value for key, value in order if key == "arg"]
        self.env = dict(value.split("=", 1) for key, value in order if key == "env")
        self.pid = 0
        self.started_at = 0.0
        self.wait_status: int | None = None
        self.childless = False
        self.deadline: float | None = None
        self.cause = ""

    def start(self) -> str:
        """Record the command's process id, then let the command run. Return an error message or ""."""
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        go_read, go_write = os.pipe()
        failed_read, failed_write = os.pipe()
        shim = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_write)
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self._exec_command(shim, go_read, failed_write)
        os.close(go_read)
        os.close(failed_write)
        self.started_at = time.time()
        self._write_status("starting")
        os.write(go_write, b"g")
        os.close(go_write)
        with open(failed_read, "rb") as file:
            failure = file.read().decode("utf-8", "replace")
        if not failure:
            self._write_status("running")
        return failure

    def _exec_command(self, shim: int, go_fd: int, failure_fd: int) -> None:
        subject = "the log"
        try:
            os.setsid()
            if os.getppid() != shim or os.read(go_fd, 1) != b"g":
                os._exit(127)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            log = os.open(f"{self.directory}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            subject = self.order["working_dir"]
            os.chdir(subject)
            subject = self.command[0]
            os.execvpe(subject, self.command, self.env)  # noqa: S606
        except BaseException as error:  # the forked child must not continue, whatever the error
            reason = error.strerror if isinstance(error, OSError) else error
            os.write(failure_fd, f"{subject}: {reason}".encode("utf-8", "replace")[:1000])
        os._exit(127)

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
        except ChildProcessError:
            self.childless = True

    @property
    def is_over(self) -> bool:
        """Whether the command has ended or, after a stop, all processes have ended or the time is up."""
        if self.deadline is None:
            return self.wait_status is not None
        return self.childless or time.monotonic() >= self.deadline

    def stop(self, cause: str, grace: float) -> None:
        """Send SIGTERM to all processes. If the call is repeated, the earlier deadline applies."""
        deadline = time.monotonic() + max(grace, 0.0)
        if self.deadline is not None:
            self.deadline = min(self.deadline, deadline)
            return
        self.deadline, self.cause = deadline, cause
        strays = [pid for pid in descendants(os.getpid()) if process_group(pid) not in (self.pid, None)]
        try:
            os.killpg(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        for pid in strays:
            send_signal(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill all processes, including newly forked processes, and wait until they are gone.

        A process in an uninterruptible state still occupies its devices.
        """
        pause = 0.001
        self.reap()
        while not self.childless:
            for pid in descendants(os.getpid()):
                send_signal(pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
            self.reap()
