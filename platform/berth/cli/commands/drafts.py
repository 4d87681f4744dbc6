"""`berth quota plan`, `apply`, `history` and `undo`: change several quotas together."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.draft_files import REMOVE_FORM, SET_FORM, draft_of
from berth.cli.exits import ExitCode, explained
from berth.cli.impact import quota_line, tell
from berth.cli.link import connected
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.quantities import to_come
from berth.cli.text import local, now, safe, short

if TYPE_CHECKING:
    from berth.client.answers import QuotaChange

CHANGES_NOTHING, CHANGES, FAILED = 0, 1, 255
File = Annotated[
    str | None, typer.Option("--file", "-f", help="A draft, YAML or JSON: `changes:`; - is stdin.")
]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar=SET_FORM, help="Repeatable.")]
Removes = Annotated[list[str] | None, typer.Option("--remove", metavar=REMOVE_FORM, help="Repeatable.")]
Note = Annotated[str | None, typer.Option(help="What it is for; kept with the change.")]


def plan(
    *, file: File = None, sets: Sets = None, removes: Removes = None, output: OutputOption = Output.TABLE
) -> None:
    """What would these quotas change? Nothing is stored. Ends with 0 (nothing), 1 (something), 255 (error).

    \b
    berth quota plan --set research/vision:local.gpu=8 --set research:local.gpu=16
    berth quota plan -f quotas.yaml
    """
    try:
        with connected() as client:
            found = client.quotas.preview(draft_of(client, file, sets or (), removes or (), None))
    except Exception as error:
        told = explained(error)
        if told is None:
            raise
        for line in told[1]:
            print(f"berth: {safe(line)}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    show_one(found, output, lambda _: tell(found))
    raise typer.Exit(CHANGES_NOTHING if found.changes_nothing else CHANGES)


def apply(
    *,
    file: File = None,
    sets: Sets = None,
    removes: Removes = None,
    note: Note = None,
    lapses: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Only for so long, as 3d, or until a time; looked at each minute."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change these quotas, all or none, after showing what that does. Exit 5 if somebody was faster.

    \b
    berth quota apply --set research/vision:local.gpu=8 --note "vision grows"
    berth quota apply -f quotas.yaml --yes
    berth quota apply --set research/vision:local.gpu=16 --for 3d
    """
    with connected() as client:
        draft = draft_of(client, file, sets or (), removes or (), note)
        if lapses is not None:
            draft["lapses_at"] = to_come("--for", lapses, now())
        found = client.quotas.preview(draft)
        if not yes:
            if not output.is_data:
                tell(found)
            if not typer.confirm("Apply?", err=True):
                raise typer.Exit(ExitCode.REFUSED)
        made = client.quotas.apply(draft, found.tag)
    if made is None:
        print("berth: everything is so already", file=sys.stderr)
        return
    change = made
    show_one(change, output, lambda _: print(f"change {change.id} is applied"))


def history(
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, newest first.")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """Which quotas were changed, by whom, and what was taken back; the latest first.

    \b
    berth quota history --limit 5
    """
    with connected() as client:
        found = list(client.quotas.changes(limit=limit))
    show_list(found, _columns(), output, "No changes.")


def undo(
    *,
    change: Annotated[int, typer.Argument(metavar="CHANGE", help="As `berth quota history` numbers them.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a change back, as a change of its own. Exit 5 if somebody has changed these quotas since.

    \b
    berth quota undo 17
    """
    with connected() as client:
        made = client.quotas.undo(change)
    show_one(made, output, lambda _: print(f"change {change} is taken back by change {made.id}"))


def _columns() -> list[Column]:
    return [
        Column("CHANGE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: local(c.at), brief=lambda c: short(c.at)),
        Column("BY", lambda c: c.actor),
        Column("QUOTAS", _quotas),
        Column("NOTE", _note, grows=True),
    ]


def _quotas(change: "QuotaChange") -> str:
    told = [quota_line(quota) for quota in change.quotas]
    if change.hidden:
        told.append(f"{change.hidden} more")
    return "; ".join(told)


def _note(change: "QuotaChange") -> str:
    undone = f"taken back by {change.undone_by}" if change.undone_by else ""
    lapses = change.lapses_at is not None and not (change.lapsed or undone)
    until = f"until {local(change.lapses_at)}" if lapses else ""
    return ", ".join(part for part in (change.note, until, undone) if part)
