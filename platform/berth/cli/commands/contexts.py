"""`berth context`: switch between named servers."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput
from berth.cli.output import Column, Output, OutputOption, show_list

app = typer.Typer(no_args_is_help=True, help="Contexts: servers that you are signed in at, by name.")


@dataclass(frozen=True)
class Row:
    name: str
    address: str
    project: str
    signed_in: bool
    current: bool

    def plain(self) -> dict[str, Any]:
        """Without the token: this is for others to see."""
        return dict(vars(self))


def context_names(incomplete: str) -> list[str]:
    from berth.client.config import BadSettings, read_contexts, settings_path

    try:
        return [name for name in read_contexts(settings_path()).known if name.startswith(incomplete)]
    except BadSettings:
        return []


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="As `berth context list` shows.", autocompletion=context_names)
]


@app.command("list")
def list_contexts(output: OutputOption = Output.TABLE) -> None:
    """The servers that `berth login` has remembered; the present one has a star.

    \b
    berth context list
    """
    from berth.client.config import read_contexts, settings_path

    contexts = read_contexts(settings_path())
    rows = [
        Row(name, settings.address, settings.project, bool(settings.token), name == contexts.current)
        for name, settings in contexts.known.items()
    ]
    columns = [
        Column("", lambda row: "*" if row.current else ""),
        Column("NAME", lambda row: row.name),
        Column("SERVER", lambda row: row.address, grows=True),
        Column("PROJECT", lambda row: row.project or "-"),
        Column("SIGNED IN", lambda row: "yes" if row.signed_in else "no"),
    ]
    show_list(rows, columns, output, "No contexts; berth login makes one.")


@app.command("use")
def use(
    name: Name,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Project to use by default.")] = None,
) -> None:
    """Talk to this server from now on. For one command: berth --context NAME ...

    \b
    berth context use prod
    berth context use prod --project vision
    """
    from berth.client.config import Contexts, read_contexts, settings_path, write_contexts

    contexts = read_contexts(settings_path())
    chosen = contexts.chosen(name)
    if project is not None:
        chosen = replace(chosen, project=project)
    write_contexts(settings_path(), Contexts(name, {**contexts.known, name: chosen}))
    print(f"{name}: {chosen.address}")


@app.command("remove")
def remove(name: Name) -> None:
    """Forget a server, with its token. To have the token revoked, too, sign out first.

    \b
    berth --context old logout && berth context remove old
    """
    from berth.client.config import read_contexts, settings_path, write_contexts

    contexts = read_contexts(settings_path())
    if name not in contexts.known:
        raise BadInput(f"context: given {name!r}; allowed: {', '.join(contexts.known) or 'there is none'}")
    write_contexts(settings_path(), contexts.without(name))
    print(f"{name} is forgotten")
