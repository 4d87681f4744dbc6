"""`berth queue`: the queue of a pool with its ordering keys, similar to `squeue`."""

import sys
from datetime import datetime
from typing import Annotated

import typer

from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import SomePool
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.text import age, now, number


def queue(
    *,
    pool: SomePool = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, first in line first.")] = 100,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who waits in a pool, in the order of the last cycle.

    \b
    berth queue
    berth queue train -o wide     # with the keys that put each there
    """
    with connected() as client:
        name = pool
        if name is None:
            names = [each.name for each in client.node_pools.list()]
            if len(names) != 1:
                raise BadInput(f"queue: which pool? allowed: {', '.join(names) or 'there is none'}")
            name = names[0]
        if watch:
            listing(lambda: client.lines.read(name, limit=limit).items, _columns, output, "", watch=True)
            return
        found = client.lines.read(name, limit=limit)

    if output is Output.CSV:
        show_list(found.items, _columns(), output, "")
        return

    def describe(_: object) -> None:
        show_list(found.items, _columns(), output, f"Nobody waits in {name}.")
        if hidden := found.workloads - len(found.items):
            print(f"berth: {hidden} more wait, further back or not yours to see", file=sys.stderr)

    show_one(found, output, describe)


def _columns() -> list[Column]:
    moment = now()
    return [
        Column("NO", lambda w: "new" if w.position is None else str(w.position), right=True),
        Column("NAME", lambda w: w.name),
        Column("PROJECT", lambda w: w.project),
        Column("GPUS", lambda w: number(w.gpus), right=True),
        Column("PRIORITY", lambda w: str(w.priority), right=True, spare=True),
        Column("AGE", lambda w: age(w.submitted_at, moment), right=True, spare=True),
        Column("EXPECTED IN", lambda w: _until(w.expected_start, moment), right=True),
        Column("KEY", lambda w: "; ".join(w.key), wide=True),
        Column("REASON", lambda w: ": ".join(part for part in (w.reason, w.message) if part), grows=True),
    ]


def _until(starts: datetime | None, moment: datetime) -> str:
    return "-" if starts is None else age(moment, starts)
