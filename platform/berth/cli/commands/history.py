"""`berth events` and `berth evictions`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.columns import event_columns, eviction_columns, pair_columns
from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import PoolOption, ProjectOption, workload_names
from berth.cli.output import Output, OutputOption, show_list, show_one
from berth.cli.quantities import moment
from berth.cli.text import now

if TYPE_CHECKING:
    from berth.client import Client

Since = Annotated[str | None, typer.Option(help="From then on: a time, or so long ago, such as 2h.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many, newest first.")]
Name = Annotated[
    str | None, typer.Option(metavar="WORKLOAD", autocompletion=workload_names, help="Of this workload.")
]


def events(
    *,
    workload: Annotated[
        str | None,
        typer.Argument(metavar="[WORKLOAD]", autocompletion=workload_names, help="Of this workload."),
    ] = None,
    project: ProjectOption = None,
    kind: Annotated[str | None, typer.Option(help="Of this kind.")] = None,
    since: Since = None,
    limit: Limit = 50,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """What happened, the latest last.

    \b
    berth events vision/train
    berth events --project vision --since 2h
    """
    with connected() as client:
        filters = {
            "workload": _id_of(client, workload),
            "project": project,
            "kind": kind,
            "since": _moment(since),
        }
        listing(
            lambda: list(client.events.list(limit=limit, **filters))[::-1], event_columns, output,
            "No events.", watch=watch,
        )  # fmt: skip


def evictions(
    *,
    kind: Annotated[
        str | None, typer.Option(help="shrink, consolidate, reclaim, preempt, stale_gang or drain.")
    ] = None,
    pool: PoolOption = None,
    project: ProjectOption = None,
    beneficiary: Annotated[
        str | None, typer.Option(metavar="WORKLOAD", autocompletion=workload_names, help="For this workload.")
    ] = None,
    workload: Name = None,
    since: Since = None,
    until: Annotated[str | None, typer.Option(help="Before then.")] = None,
    limit: Limit = 50,
    csv: Annotated[bool, typer.Option("--csv", help="All of them, as a CSV file.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Who took from whom, added up.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who gave way to whom, when, and by which rule; the latest first.

    \b
    berth evictions --project vision --since 7d
    berth evictions --beneficiary speech/urgent
    berth evictions --csv > evictions.csv
    berth evictions --matrix --since 30d
    """
    with connected() as client:
        filters: dict[str, object] = {
            "kind": kind, "pool": pool, "project": project, "beneficiary": _id_or_name(client, beneficiary),
            "workload": _id_or_name(client, workload), "since": _moment(since),
            "until": _moment(until, "--until"),
        }  # fmt: skip
        if matrix:
            _matrix(client, {**filters, "limit": min(limit, 500)}, output)
            return
        if csv:
            for piece in client.evictions.csv(**filters):
                sys.stdout.buffer.write(piece)
            return
        listing(
            lambda: list(client.evictions.list(limit=limit, **filters)), eviction_columns, output,
            "No evictions.", watch=watch,
        )  # fmt: skip


def _matrix(client: "Client", filters: dict[str, object], output: Output) -> None:
    if filters.pop("workload") is not None:
        raise BadInput("--matrix: not with --workload; allowed: --project, --beneficiary, --pool, --kind")
    found = client.evictions.matrix(**filters)
    if output is Output.CSV:
        show_list(found.pairs, pair_columns(), output, "No evictions.")
        return

    def describe(_: object) -> None:
        show_list(found.pairs, pair_columns(), output, "No evictions.")
        if found.left_out:
            print(f"berth: {found.left_out} more pairs; --limit shows up to 500", file=sys.stderr)

    show_one(found, output, describe)


def _id_of(client: "Client", reference: str | None) -> str | None:
    return None if reference is None else client.workloads.find(reference).id


def _id_or_name(client: "Client", reference: str | None) -> str | None:
    """The audit outlives workloads: a name that no workload has any more is looked for as it stands."""
    from berth.client import NotFound

    try:
        return _id_of(client, reference)
    except NotFound:
        return str(reference).rpartition("/")[2]


def _moment(text: str | None, option: str = "--since") -> str | None:
    return None if text is None else moment(option, text, now())
