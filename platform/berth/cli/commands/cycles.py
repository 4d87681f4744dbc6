"""`berth cycles` and `berth replay`, for platform admins."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.exits import BadInput, ExitCode
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.output import Column, Output, OutputOption, show_one
from berth.cli.quantities import moment
from berth.cli.text import local, now, safe, short


def cycles(
    *,
    since: Annotated[str | None, typer.Option(help="From then on: a time, or so long ago, as 2h.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What the scheduler did, cycle by cycle; the latest first. For platform admins.

    \b
    berth cycles --since 2h
    berth cycles --limit 5 --watch
    """
    filters = {} if since is None else {"since": moment("--since", since, now())}
    with connected() as client:
        listing(
            lambda: list(client.cycles.list(limit=limit, **filters)), _columns, output, "No cycles.",
            watch=watch,
        )  # fmt: skip


def replay(
    *,
    cycle: Annotated[int, typer.Argument(metavar="CYCLE", help="As `berth cycles` numbers them.")],
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write what it saw, for `berth simulate`.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Decide a stored cycle once more, and say what comes out otherwise. Exit 1 if anything does.

    \b
    berth replay 1812
    berth replay 1812 --save cycle.json && berth simulate cycle.json
    """
    with connected() as client:
        found = client.cycles.replay(cycle)
        scenario = None if save is None else client.cycles.scenario(cycle)
    if save is not None:
        _save(save, scenario)

    def describe(_: object) -> None:
        print(safe(found.summary))
        for line in found.differences:
            print(f"  {safe(line)}")
        if found.differing > len(found.differences):
            print(f"  ... and {found.differing - len(found.differences)} more")

    show_one(found, output, describe)
    if not found.same:
        raise typer.Exit(ExitCode.REFUSED)


def _save(file: str, scenario: object) -> None:
    if scenario is None:
        raise BadInput("what this cycle saw is not kept any more")
    try:
        Path(file).write_text(json.dumps(scenario, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--save {file}: {error.strerror or error}") from None
    print(f"berth: {file} written", file=sys.stderr)


def _columns() -> list[Column]:
    return [
        Column("CYCLE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: local(c.at), brief=lambda c: short(c.at)),
        Column("TRIGGER", lambda c: c.trigger, spare=True),
        Column("NODES", lambda c: str(c.nodes), right=True, wide=True),
        Column("WORKLOADS", lambda c: str(c.workloads), right=True, spare=True),
        Column("PENDING", lambda c: str(c.pending), right=True),
        Column("APPLIED", lambda c: str(c.applied), right=True),
        Column("STALE", lambda c: str(c.stale), right=True, wide=True),
        Column("EVICTIONS", lambda c: str(c.evictions), right=True),
        Column("DECIDED IN MS", lambda c: f"{c.decide_ms:.1f}", right=True),
        Column("ENGINE", lambda c: c.engine, wide=True),
    ]
