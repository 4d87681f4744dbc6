"""Keep a display updated, and wait for a workload to end."""

import sys
from collections.abc import Callable
from time import sleep
from typing import TYPE_CHECKING

from berth.cli.output import console_of
from berth.cli.text import safe

if TYPE_CHECKING:
    from rich.console import RenderableType

    from berth.client import Client
    from berth.client.answers import Workload

REFRESH_SECONDS = 2.0


def watched(draw: Callable[[], "RenderableType"], every: float = REFRESH_SECONDS) -> None:
    """Redrawn in place on a terminal, printed anew elsewhere, until Ctrl-C. While the server cannot be
    reached the last one stays; what cannot be drawn at all ends it at once."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from berth.client import Unreachable

    console = console_of()
    last = draw()
    if not console.is_terminal:
        while True:
            console.print(last)
            print(flush=True)
            sleep(every)
            last = draw()
    with Live(last, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            sleep(every)
            try:
                last = draw()
                live.update(last, refresh=True)
            except Unreachable as trouble:
                live.update(Group(last, Text(safe(f"berth: {trouble}"), style="red")), refresh=True)


def stay_with(client: "Client", workload: "Workload") -> "Workload":
    """Tells each change on a line, and returns the workload as it ended."""
    last = workload
    for last in client.workloads.changes(workload.id):
        tell(last)
    return last


def tell(workload: "Workload") -> None:
    """On stderr, so that output stays output."""
    reason = f" ({workload.reason})" if workload.reason else ""
    message = f": {workload.message}" if workload.message else ""
    print(safe(f"{workload.handle} is {workload.phase}{reason}{message}"), file=sys.stderr, flush=True)
