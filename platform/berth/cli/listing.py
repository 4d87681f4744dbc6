"""Print a list once, or keep it updated with `--watch`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput
from berth.cli.output import Column, Output, room, show_list, table_of

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Stay, and keep it up to date.")]


def listing(
    find: Callable[[], Sequence[Any]],
    columns: Callable[[], Sequence[Column]],
    output: Output,
    nothing: str,
    *,
    watch: bool = False,
) -> None:
    """`find` and `columns` are asked anew for each look: ages go on, too."""
    if not watch:
        show_list(find(), columns(), output, nothing)
        return
    from berth.cli.watching import watched

    if output.is_data:
        raise BadInput(f"--watch: given together with --output {output}; allowed: table, wide")
    watched(lambda: table_of(find(), columns(), output, room()))
