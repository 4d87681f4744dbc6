"""Start Berth like `python -m berth.server.up`, with web and scheduler processes that record their steps."""

import sys
from collections.abc import Callable
from typing import Any

from berth.server.up import processes
from berth.server.up.__main__ import main

MODULE, TIMED_MODULE = "berth.server.up.preload", "benchmarks.setup.timed_preload"

command_launcher = processes.command_launcher


def timed_launcher(command: Callable[[], list[str]], *arguments: Any) -> Any:
    """Replace the process that Berth's programs are forked from."""
    return command_launcher(
        lambda: [TIMED_MODULE if word == MODULE else word for word in command()], *arguments
    )


if __name__ == "__main__":
    processes.command_launcher = timed_launcher
    sys.exit(main())
