"""bubblewrap process that builds an enclosure and keeps it alive."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from pools.runtimes.shim.processes import children, is_running


class Builder:
    """Process that runs bubblewrap to build an enclosure, and exits with its parent.

    `errors` is a file descriptor for bubblewrap's output, which this object closes. Once the enclosure has
    been built, `init` is the process ID of its first process, and `pids` are bubblewrap's own processes.
    `was_killed` is true if bubblewrap was killed before the enclosure was built.
    """

    def __init__(self, command: list[str], errors: int) -> None:
        self._info, info_write = os.pipe()
        input_read, self._input = os.pipe()
        self._ready, ready_write = os.pipe()
        os.write(self._input, b"!")  # write before the fork, because bubblewrap may end at any time
        self.init = 0
        self.was_killed = False
        self.pids: frozenset[int] = frozenset()
        self._pid = os.fork()
        if self._pid == 0:
            _execute(command, info_write, input_read, ready_write, errors)
        for fd in (info_write, input_read, ready_write, errors):
            os.close(fd)

    def wait(self) -> bool:
        """Wait until the enclosure has been built. Return whether the build succeeded."""
        is_ready = os.read(self._ready, 1) == b"!"  # the process inside the enclosure echoes its input
        info = os.read(self._info, 4096).decode() if is_ready else ""
        for fd in (self._ready, self._info):
            os.close(fd)
        if not is_ready:
            _, status = os.waitpid(self._pid, 0)
            self.was_killed = os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, 128 + signal.SIGKILL)
        else:
            self.init = int(info.split('"child-pid":')[1].split(",")[0].split("}")[0])
            self.pids = frozenset((self._pid, self.init, *children(self.init)))
        return is_ready

    def is_running(self) -> bool:
        return is_running(self._pid) and is_running(self.init)

    def end(self) -> None:
        """Tear down an enclosure that no pod uses."""
        os.close(self._input)
        try:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def _execute(command: list[str], info_write: int, input_read: int, ready_write: int, errors: int) -> None:
    try:
        os.setsid()
        os.dup2(input_read, 0)
        os.dup2(ready_write, 1)
        os.dup2(errors, 2)
        os.set_inheritable(info_write, True)
        program, *options = _replace_paths_with_descriptors(command)
        os.execve(program, [program, "--info-fd", str(info_write), *options], {})  # noqa: S606
    except BaseException as error:  # the forked child must exit here, even after an unexpected error
        os.write(2, str(error).encode())
    os._exit(127)


def _replace_paths_with_descriptors(command: list[str]) -> list[str]:
    """Open the files that bubblewrap copies, and replace their paths in the command with descriptors."""
    opened = command.copy()
    for number, option in enumerate(command):
        if option == "--file":
            fd = os.open(command[number + 1], os.O_RDONLY)
            os.set_inheritable(fd, True)
            opened[number + 1] = str(fd)
    return opened
