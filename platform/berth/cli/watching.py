"""Here we keep something on the screen up to date, and stay with a workload until it has ended."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from berth.cli.output import console_of, print_table
from berth.cli.text import safe

if TYPE_CHECKING:
    from rich.table import Table

    from berth.client import Client
    from berth.client.answers import Workload

REFRESH_SECONDS = 2.0


def watched(draw: Callable[[], "Table"]) -> None:
    """Redrawn in place on a terminal, printed anew elsewhere, until Ctrl-C."""
    from rich.live import Live

    console = console_of()
    if not console.is_terminal:
        while True:
            print_table(draw())
            print(flush=True)
            time.sleep(REFRESH_SECONDS)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(draw(), refresh=True)
            time.sleep(REFRESH_SECONDS)


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
