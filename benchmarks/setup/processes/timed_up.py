"""Start Berth like `python -m berth.server.up`, and record the steps of the web process and the scheduler."""

import sys
from collections.abc import Callable
from typing import Any

from berth.server.up import processes
from berth.server.up.__main__ import main

MODULE, TIMED_MODULE = "berth.server.up.preload", "benchmarks.setup.processes.timed_preload"

command_launcher = processes.command_launcher


def timed_launcher(command: Callable[[], list[str]], *arguments: Any) -> Any:
    """Return a launcher that starts `timed_preload` instead of `preload`."""
    return command_launcher(
        lambda: [TIMED_MODULE if word == MODULE else word for word in command()], *arguments
    )


if __name__ == "__main__":
    processes.command_launcher = timed_launcher
    sys.exit(main())
