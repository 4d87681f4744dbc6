"""Entry point of `python -m berth.server.up.preload`: load Berth once, then fork its processes.

The argument is the socket for requests from the supervisor (see `berth.server.up.supervision.forks`). Forked
processes cannot use threads or database connections, so this process keeps none.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from berth.parent_bound import end_with_parent
from berth.server.up.supervision.forks import MESSAGE_MAX, READY

# File descriptors in a request: the reply socket, the log file and a web process's listening socket.
FILES_MAX = 3
PR_SET_NAME = 15
# All modules that the programs would otherwise import at startup.
MODULES = (
    "berth.server.asgi",
    "berth.server.up.serve",
    "berth.server.up.tasks",
    "berth.server.wiring",
    "django_q.cluster",
    "pools.reconciler.background",
    "projects.management.commands.run_services",
    "scheduler.management.commands.run_scheduler",
)
# Packages that frameworks import if installed, although the server does not need them.
UNUSED = ("greenlet", "jinja2", "markdown", "pygments", "requests", "rich", "watchfiles")
Program = Callable[[], None]


def main() -> None:
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.set_inheritable(False)
    load()
    requests.send(READY)
    select.select([requests], [], [])  # wait for the supervisor's first request, which follows the migrations
    warm_up()
    run = fork_on_request(requests, supervisor=os.getppid())
    gc.enable()
    run()


def load() -> None:
    """Import all programs, and prevent the garbage collector from modifying the loaded objects."""
    loaded: dict[str, Any] = sys.modules
    unused = [name for name in UNUSED if name not in loaded]
    loaded |= dict.fromkeys(unused)  # importing these packages now raises ImportError
    for module in MODULES:
        importlib.import_module(module)
    for name in unused:
        del loaded[name]
    gc.disable()
    _freeze()


def warm_up() -> None:
    """Read a row of each table, so that the code that queries need is loaded. Ignore database errors."""
    from django.apps import apps
    from django.db import Error, connection

    with contextlib.suppress(Error):
        for model in apps.get_models():
            model._base_manager.first()
    connection.close()
    _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def fork_on_request(requests: socket.socket, supervisor: int) -> Program:
    """Fork one process for each request. In the forked process, return the program to run."""
    while True:
        name, files, _, _ = socket.recv_fds(requests, MESSAGE_MAX, FILES_MAX)
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if os.fork() != 0:
                os._exit(0)  # the supervisor adopts the forked process
            requests.close()
            while os.getppid() == between:
                time.sleep(0.001)
            end_with_parent(supervisor, signal.SIGKILL)
            return _prepare(name.decode(), files)
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def _prepare(name: str, files: Sequence[int]) -> Program:
    """Set up a forked process and return its program.

    The process exits if the supervisor does not expect it.
    """
    for file in files:
        os.set_inheritable(file, False)
    report, log, *sockets = files
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    _set_title(f"berth: {name}")
    with socket.socket(fileno=report) as supervisor:
        try:
            supervisor.send(str(os.getpid()).encode())
            is_expected = supervisor.recv(MESSAGE_MAX)
        except OSError:
            is_expected = b""
    if not is_expected:
        sys.exit(0)
    return _programs([socket.socket(fileno=file) for file in sockets])[name.partition("-")[0]]


def _programs(sockets: Sequence[socket.socket]) -> dict[str, Program]:
    from berth.server.up import serve, tasks
    from projects.management.commands import run_services
    from scheduler.management.commands import run_scheduler

    return {
        "web": lambda: serve.serve(*sockets),
        "tasks": tasks.main,
        "scheduler": run_scheduler.Command().handle,
        "services": run_services.Command().handle,
    }


def _set_title(title: str) -> None:
    """Set the name of this process in process lists."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # memory range that contains the command line
    text = title.encode()[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    ctypes.CDLL(None).prctl(PR_SET_NAME, text, 0, 0, 0)  # the kernel truncates the name


if __name__ == "__main__":
    main()
