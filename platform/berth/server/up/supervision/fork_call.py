"""Call a function in a forked process, so that its imports take up no memory in this process."""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from berth.parent_bound import end_with_parent
from berth.server.up.errors import StartupError


def call_in_fork(function: Callable[[], Any]) -> Any:
    """Call the function in a forked process, and return its result.

    The result is transferred as JSON. Call this only while the process has a single thread. Raises
    StartupError if the function raises it, or if the forked process dies.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            end_with_parent(parent, signal.SIGKILL)
            os.close(reading)
            with os.fdopen(writing, "w") as pipe:
                pipe.write(json.dumps(_call_and_report(function)))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    if not text:
        raise StartupError(
            "A process needed for startup ended early. Fix any error above, then start Berth again."
        )
    answer = json.loads(text)
    if "error" in answer:
        raise StartupError(answer["error"])
    return answer["result"]


def _call_and_report(function: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"result": function()}
    except StartupError as error:
        return {"error": str(error)}
