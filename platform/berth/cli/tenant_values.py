"""Options and output that departments and projects share."""

from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput
from berth.cli.output import Column, print_fields
from berth.cli.quantities import seconds
from berth.cli.text import span

Title = Annotated[str | None, typer.Option(help="For people to read.", show_default=False)]
Rank = Annotated[int | None, typer.Option(help="Higher ranks are served first; else 0.", show_default=False)]
ReclaimAfter = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|default",
        help="What it borrows is not taken back from work that runs for less than this.",
        show_default=False,
    ),
]
PreemptAfter = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|default",
        help="Its own work gives way to its more important work only after this.",
        show_default=False,
    ),
]


def tenant_values(
    title: str | None, rank: int | None, reclaim_after: str | None, preempt_after: str | None
) -> dict[str, Any]:
    """What was named, as REST calls it."""
    values: dict[str, Any] = {}
    if title is not None:
        values["title"] = title
    if rank is not None:
        values["rank"] = rank
    for key, option, text in (
        ("reclaim_min_runtime", "--reclaim-after", reclaim_after),
        ("preempt_min_runtime", "--preempt-after", preempt_after),
    ):
        if text is not None:
            values[key] = None if text == "default" else seconds(option, text)
    return values


def something(command: str, values: dict[str, Any]) -> dict[str, Any]:
    if not values:
        allowed = "--title, --rank, --reclaim-after, --preempt-after"
        raise BadInput(f"{command}: nothing to change; allowed: {allowed}")
    return values


def tenant_columns(*between: Column) -> list[Column]:
    return [
        Column("NAME", lambda t: t.name),
        *between,
        Column("RANK", lambda t: str(t.rank), right=True),
        Column("TITLE", lambda t: t.title, grows=True),
        Column("RECLAIM AFTER", lambda t: _after(t.reclaim_min_runtime), right=True, wide=True),
        Column("PREEMPT AFTER", lambda t: _after(t.preempt_min_runtime), right=True, wide=True),
    ]


def describe_tenant(tenant: Any, inside: list[tuple[str, str]], members: list[Any]) -> None:
    """`inside`: what it has or belongs to."""
    print_fields(
        [
            ("Name", tenant.name),
            ("Title", tenant.title),
            *inside,
            ("Rank", str(tenant.rank)),
            ("Reclaim after", _after(tenant.reclaim_min_runtime)),
            ("Preempt after", _after(tenant.preempt_min_runtime)),
            ("Members", ", ".join(f"{member.user} ({member.role})" for member in members)),
        ]
    )


def _after(seconds: int | None) -> str:
    return "default" if seconds is None else span(seconds)
