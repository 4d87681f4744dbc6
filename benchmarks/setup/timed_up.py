"""Start Berth like `python -m berth.server.up`, with web and scheduler processes that record their steps.

See `benchmarks.setup.timed_process`. The steps are in the files `web` and `scheduler` of the folder STEPS.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from berth.server.up import start
from berth.server.up.__main__ import main
from berth.server.up.child import Child

STEPS = "BERTH_BENCH_STEPS"
_MODULE = "benchmarks.setup.timed_process"


def timed(create: Callable[..., Child]) -> Callable[..., Child]:
    """Let the child process record its steps."""

    def create_timed(*arguments: Any) -> Child:
        child = create(*arguments)
        command, file = child.command, str(Path(os.environ[STEPS]) / child.name)

        def timed_command() -> list[str]:
            words = command()
            position = words.index("-m") + 1
            return [*words[:position], _MODULE, file, *words[position:]]

        child.command = timed_command
        return child

    return create_timed


if __name__ == "__main__":
    start.web = timed(start.web)  # type: ignore[assignment]
    start.scheduler = timed(start.scheduler)  # type: ignore[assignment]
    sys.exit(main())
