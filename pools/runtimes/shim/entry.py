"""Turn a forked process into a process inside the pod."""

from __future__ import annotations

# `signal` is not imported: importing it takes half as long as starting Python itself.
import _signal as signal  # type: ignore[import-not-found]
import os

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from ctypes import CDLL

    from pools.runtimes.shim.pod import Pod

PID_DIGITS = 12
LIMITS = "the pod's limits could not be set"
_PR_SET_PDEATHSIG = 1
# Programs that need more open files can raise their own soft limit up to the hard limit.
OPEN_FILES_SOFT, OPEN_FILES_HARD = 65_536, 1_048_576


class PodEntry:
    """Steps for a forked process to enter the pod.

    `subject` is what the current step works on, for error messages. This process ends if `parent`, which
    adopts it, dies.
    """

    def __init__(self, pod: Pod, libc: CDLL, parent: int) -> None:
        self._pod, self._libc, self._parent = pod, libc, parent
        self._namespaces = pod.namespaces
        self.subject = LIMITS

    def join(self, go_fd: int, born_fd: int) -> None:
        """Enter the pod's control groups and namespaces.

        Return only in the process inside the pod, after its ID has been written to `born_fd` and permission
        has arrived on `go_fd`. If the pod has namespaces, `go_fd` first contains the ID of their first
        process.
        """
        self.subject = LIMITS
        _limit_open_files()
        self._pod.cgroups.join()
        self.subject = "the pod's enclosure"
        if self._namespaces:
            init = os.read(go_fd, PID_DIGITS)
            if not init:
                os._exit(127)
            self._namespaces.enter(self._libc, int(init))
            child = os.fork()
            if child != 0:
                os.write(born_fd, str(child).encode())
                os._exit(0)  # after this process exits, the parent adopts the child
        else:
            os.write(born_fd, str(os.getpid()).encode())
        os.setsid()
        if os.read(go_fd, 1) != b"g":
            os._exit(127)
        # Berth may have inherited ignored signals, for example SIGHUP from `nohup`.
        for number in (
            signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM,
            signal.SIGCHLD,
        ):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)

    def drop_privileges(self) -> None:
        """Switch to the pod's user. From then on, the process is killed when its parent exits."""
        self.subject = "the pod's enclosure"
        if self._namespaces:
            self._namespaces.drop_privileges(self._libc)
        # Set the signal again, because changing the user resets it. In a PID namespace, the parent's ID is 0.
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() not in (self._parent, 0):
            os._exit(127)

    def execute(self, command: list[str], env: dict[str, str]) -> None:
        """Replace this process with the command, in the pod's working directory."""
        self.enter_directory()
        self.subject = command[0]
        os.execvpe(command[0], command, env)  # noqa: S606

    def report_failure(self, fd: int, error: BaseException) -> None:
        reason = error.strerror if isinstance(error, OSError) else error
        os.write(fd, f"{self.subject}: {reason}".encode("utf-8", "replace")[:1000])

    def enter_directory(self) -> None:
        """Change to the image's working directory or, if that is not accessible, to the directory in the pod
        spec.
        """
        self.subject = self._pod.order["working_dir"]
        if "create_dir" in self._pod.order:
            os.makedirs(self._pod.order["create_dir"], 0o700, exist_ok=True)
        if self._namespaces and self._namespaces.directory:
            try:
                os.chdir(self._namespaces.directory)
            except OSError:  # the pod's user may not enter the directory
                pass
            else:
                return
        os.chdir(self._pod.order["working_dir"])


def _limit_open_files() -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = OPEN_FILES_HARD if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_HARD)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES_SOFT, hard), hard))
