"""Call a function in a forked process, so that this process does not keep what the function imports."""

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

from berth.server.up.errors import StartupError
from berth.tied import end_with_parent

Result = TypeVar("Result")


def call_in_fork(function: Callable[[], Result]) -> Result:
    """Return the function's result, or raise its exception. Both must be picklable.

    Call this only while the process has a single thread. Raises StartupError if the forked process dies.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            end_with_parent(parent, signal.SIGKILL)
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(_outcome(function)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        raise StartupError("A process that prepares the start ended early. Start Berth again.")
    result, error = pickle.loads(answer)  # noqa: S301 - written by this program
    if error is not None:
        raise error
    return result


def _outcome(function: Callable[[], Result]) -> tuple[Result | None, Exception | None]:
    try:
        return function(), None
    except Exception as error:
        return None, error
