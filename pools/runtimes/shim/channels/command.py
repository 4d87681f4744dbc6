"""Run a channel's command or program in the pod, on a terminal or with three pipes.

It has the pod's namespaces, control groups, user, variables and working directory.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
import warnings  # noqa: F401 (os.execvpe imports it, and it may not exist inside)

from pools.runtimes.shim.channels.listener import VARIABLE
from pools.runtimes.shim.entry import PID_DIGITS, PodEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ctypes import CDLL

    from pools.runtimes.shim.pod import Pod

SIZE_MAX = 10_000  # maximum rows or columns of a terminal
HANG_UP_SECONDS = 2.0  # how long a command may run after the connection is lost
TIDY_SECONDS = 60.0  # time for a copy to delete its incomplete file, even on a busy machine or a slow disk
SETTLE_SECONDS = 1.0  # time for a terminal to deliver the last output after its command exits
_PR_SET_DUMPABLE = 4
_SIGNAL_BASE = 128  # added to the signal number to get the exit code of a killed command
_NUMBERS_BY_NAME = {each.name[3:]: each.value for each in signal.Signals}
_NAMES_BY_NUMBER = {number: name for name, number in _NUMBERS_BY_NAME.items()}


class Command:
    """Running command. `outputs` maps file descriptors to 1 (stdout) or 2 (stderr).

    `failure` says why the command could not be started, or is empty.
    """

    def __init__(self, pid: int, input_fd: int, outputs: dict[int, int], has_terminal: bool) -> None:
        self.pid, self.outputs, self.has_terminal = pid, outputs, has_terminal
        self.failure = ""
        self.reports_ends = False  # True if the client is notified when one of the outputs ends
        self.hang_up_seconds = HANG_UP_SECONDS
        self._input = input_fd
        self._status: int | None = None
        self._exited_at = 0.0
        for fd in {input_fd, *outputs}:
            if fd >= 0:
                os.set_blocking(fd, False)

    @property
    def has_exited(self) -> bool:
        return self._status is not None

    @property
    def exit_code(self) -> int:
        code = os.waitstatus_to_exitcode(self._status or 0)
        return code if code >= 0 else _SIGNAL_BASE - code

    @property
    def signal_name(self) -> str:
        """Name of the signal that ended the command, such as TERM, or an empty string."""
        code = os.waitstatus_to_exitcode(self._status or 0)
        return _NAMES_BY_NUMBER.get(-code, "") if code < 0 else ""

    @property
    def is_over(self) -> bool:
        """Whether the command has exited and its output has been read.

        Background processes may keep a pipe open.
        """
        if self._status is None:
            return False
        if not self.outputs:
            return True
        if self.has_terminal:
            return time.monotonic() - self._exited_at > SETTLE_SECONDS and not self._is_readable()
        return not self._is_readable()

    def _is_readable(self) -> bool:
        return bool(select.select(list(self.outputs), [], [], 0)[0])

    def poll_events(self, reads: bool, writes: bool) -> dict[int, int]:
        """Return the descriptors to poll, with their event masks."""
        events = dict.fromkeys(self.outputs, select.POLLIN) if reads else {}
        if writes and self._input >= 0:
            events[self._input] = events.get(self._input, 0) | select.POLLOUT
        return events

    def reap(self) -> None:
        """Reap the command and adopted orphans if they have ended."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self._status, self._exited_at = status, time.monotonic()
        except ChildProcessError:
            return

    def read(self, fd: int, limit: int) -> bytes:
        """Return available output, or b"" if there is none. When an output ends, remove it from `outputs`."""
        try:
            data = os.read(fd, limit)
        except BlockingIOError:
            return b""
        except OSError:  # the terminal has no processes left
            data = b""
        if not data:
            del self.outputs[fd]
            if fd != self._input:
                os.close(fd)
        return data

    def write(self, data: bytes | bytearray) -> int:
        """Write to the command's stdin. Return the number of bytes that were written or discarded."""
        if self._input < 0:
            return len(data)
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close_input()
            return len(data)

    def close_input(self) -> None:
        if not self.has_terminal and self._input >= 0:
            os.close(self._input)
        self._input = -1

    def resize(self, size: dict[str, object]) -> None:
        if self.has_terminal and self._input >= 0:
            set_size(self._input, size)

    def send_signal(self, name: str) -> None:
        """Send a signal to the command's process group. Unknown names are ignored."""
        number = _NUMBERS_BY_NAME.get(name)
        if number is not None and not self.has_exited:
            self._signal_group(number)

    def hang_up(self) -> None:
        """Close the terminal or the pipes, and send SIGHUP to the command's processes."""
        for fd in {self._input, *self.outputs}:
            if fd >= 0:
                os.close(fd)
        self._input, self.outputs = -1, {}
        self._signal_group(signal.SIGHUP)

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def set_size(fd: int, size: dict[str, object]) -> None:
    """Set the rows and columns of a terminal. Raises ValueError."""
    rows, columns = (int(str(size.get(name, default))) for name, default in (("rows", 24), ("columns", 80)))
    if not (0 < rows <= SIZE_MAX and 0 < columns <= SIZE_MAX):
        raise ValueError(f"a terminal must have 1 to {SIZE_MAX} rows and columns")
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def start_command(pod: Pod, libc: CDLL, request: dict[str, object], mark: str) -> Command:
    """Start a requested command or program in the pod. Raises ValueError, KeyError or TypeError.

    `command` is a list. `terminal` is null or contains `rows`, `columns` and `type`.
    """
    if "command" not in request:
        return _start_program(pod, libc, request, mark)
    command = [str(argument) for argument in request["command"]]  # type: ignore[attr-defined]
    terminal = request.get("terminal")
    if not command or not command[0] or any("\0" in argument for argument in command):
        raise ValueError("the command must not be empty or contain NUL bytes")
    if terminal is not None and not isinstance(terminal, dict):
        raise TypeError("the terminal must be an object or null")
    env = {**pod.env, **_secret_variables(pod), VARIABLE: mark}
    if terminal is not None:
        env["TERM"] = str(terminal.get("type") or "xterm-256color")
    files = Pipes(pod) if terminal is None else Terminal(terminal)
    return _start(pod, libc, files, lambda entry: entry.execute(command, env))


def _start_program(pod: Pod, libc: CDLL, request: dict[str, object], mark: str) -> Command:
    from pools.runtimes.shim.channels import programs  # slow import that commands do not need

    program = programs.find_program(request, pod.env, mark)

    def run_in_pod(entry: PodEntry) -> None:
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # hide the shim's memory from the pod
        entry.enter_directory()
        programs.run_program(program)

    command = _start(pod, libc, Pipes(pod), run_in_pod)
    command.reports_ends = programs.CONNECT in request
    if programs.COPY_TO in request:
        command.hang_up_seconds = TIDY_SECONDS
    return command


class Terminal:
    """Terminal that the command's process opens inside the pod and passes to the relay."""

    def __init__(self, size: dict[str, object]) -> None:
        self._size = size
        self._ours, self._theirs = socket.socketpair()

    def connect(self) -> None:
        """Open a terminal and make it this process's stdin, stdout and stderr.

        Call this after the process has entered the pod.
        """
        master, slave = os.openpty()
        set_size(master, self._size)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        socket.send_fds(self._theirs, [b"t"], [master])
        for number in range(3):
            os.dup2(slave, number)

    def command(self, pid: int) -> Command:
        self._theirs.close()
        _, received, _, _ = socket.recv_fds(self._ours, 1, 1)
        self._ours.close()
        if not received:
            return Command(pid, -1, {}, True)
        return Command(pid, received[0], {received[0]: 1}, True)


class Pipes:
    """Pipes for a command without a terminal. The pod's user owns the pipes, because programs may reopen
    them.
    """

    def __init__(self, pod: Pod) -> None:
        pairs = [os.pipe() for _ in range(3)]
        self._theirs = [pairs[0][0], pairs[1][1], pairs[2][1]]
        self._ours = [pairs[0][1], pairs[1][0], pairs[2][0]]
        if pod.namespaces and pod.namespaces.uid:
            for fd in self._theirs:
                os.fchown(fd, pod.namespaces.uid, pod.namespaces.uid)

    def connect(self) -> None:
        for number, fd in enumerate(self._theirs):
            os.dup2(fd, number)

    def command(self, pid: int) -> Command:
        for fd in self._theirs:
            os.close(fd)
        return Command(pid, self._ours[0], {self._ours[1]: 1, self._ours[2]: 2}, False)


def _start(pod: Pod, libc: CDLL, files: Terminal | Pipes, run_in_pod: Callable[[PodEntry], None]) -> Command:
    """Fork a process that enters the pod, connects `files` and calls `run_in_pod`, which never returns."""
    go_read, go_write = os.pipe()
    failed_read, failed_write = os.pipe()
    born_read, born_write = os.pipe()
    relay = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        os.close(go_write)
        entry = PodEntry(pod, libc, relay)
        try:
            entry.join(go_read, born_write)
            entry.drop_privileges()
            entry.subject = "the terminal"
            files.connect()
            run_in_pod(entry)
        except BaseException as error:  # the forked child must exit here, even after an unexpected error
            entry.report_failure(failed_write, error)
        os._exit(127)
    for fd in (failed_write, born_write, go_read):
        os.close(fd)
    if pod.namespaces:
        os.write(go_write, str(pod.namespaces.init).encode().zfill(PID_DIGITS))
    pid = int(os.read(born_read, 32) or 0)
    if pid and pid != child:
        os.waitpid(child, 0)
    if pid:
        os.write(go_write, b"g")
    started = files.command(pid)
    with open(failed_read, "rb") as file:
        started.failure = file.read().decode("utf-8", "replace")
    for fd in (go_write, born_read):
        os.close(fd)
    if not pid and not started.failure:
        started.failure = "the process that starts the command was killed"
    return started


def _secret_variables(pod: Pod) -> dict[str, str]:
    """Return the secret variables, which exist only in the memory of the pod's command."""
    try:
        with open(f"/proc/{pod.pid}/environ", "rb") as file:
            fields = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError:  # the command has ended
        return {}
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    return {name: values[name] for name in pod.secret_names if name in values}
