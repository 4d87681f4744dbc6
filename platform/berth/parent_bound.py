"""End a program when the process that started it dies.

This script runs between the two processes and asks the kernel for a signal.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def parent_bound_command(
    command: list[str], *, death_signal: int = signal.SIGTERM, account: tuple[int, int] | None = None
) -> list[str]:
    """Return a command line that runs `command` and kills it if this process dies.

    `account` is the (uid, gid) to run as.
    """
    uid, gid = account or (-1, -1)
    return [
        sys.executable,
        "-I",
        __file__,
        str(os.getpid()),
        str(int(death_signal)),
        str(uid),
        str(gid),
        *command,
    ]


def end_with_parent(parent: int, death_signal: int) -> None:
    """Ask the kernel for `death_signal` when the parent dies.

    Changing the user afterwards would cancel the request.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:
        sys.exit(0)  # the parent had already died


def main() -> None:
    parent, death_signal, uid, gid = (int(value) for value in sys.argv[1:5])
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    end_with_parent(parent, death_signal)
    os.execvp(sys.argv[5], sys.argv[5:])  # noqa: S606


if __name__ == "__main__":
    main()
