"""`berth token`: create, list and revoke API tokens."""

import sys
from datetime import timedelta
from typing import Annotated

import typer

from berth.cli.exits import BadInput, ExitCode
from berth.cli.link import connected
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.quantities import seconds
from berth.cli.text import age, local, now

app = typer.Typer(no_args_is_help=True, help="Tokens: by them programs act for you.")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="To recognise it by.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or admin; repeat. Default: read, write.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(help="After so long, such as 30d; never = not at all. Default: with the token in use."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token. Its secret is printed this once, alone on stdout.

    \b
    berth token create ci --scope read --scope write --expires 30d
    """
    given = None if expires in (None, "never") else expires
    until = None if given is None else now() + timedelta(seconds=seconds("--expires", given))
    with connected() as client:
        token = client.tokens.create(name, scope or ["read", "write"], until)
    if token.token is None:
        print(
            f"berth: {name} was made, but its secret was lost with the connection: revoke it", file=sys.stderr
        )
        raise typer.Exit(ExitCode.REFUSED)
    if expires == "never" and token.expires_at:
        print(f"berth: {name} ends with the token in use, {local(token.expires_at)}", file=sys.stderr)
    show_one(token, output, lambda _: print(token.token))


@app.command("list")
def list_tokens(
    every: Annotated[bool, typer.Option("--all", "-a", help="Also revoked ones.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Your tokens; the secrets are not kept anywhere.

    \b
    berth token list --all
    """
    moment = now()
    columns = [
        Column("NAME", lambda t: t.name),
        Column("BEGINS", lambda t: t.prefix),
        Column("SCOPES", lambda t: ",".join(t.scopes)),
        Column("EXPIRES", lambda t: local(t.expires_at) if t.expires_at else "never"),
        Column("SIGN-IN", lambda t: "yes" if t.by_sign_in else "", wide=True),
        Column("USED", lambda t: age(t.last_used_at, moment), right=True),
        Column("REVOKED", lambda t: local(t.revoked_at), wide=not every),
        Column("ID", lambda t: str(t.id), right=True, wide=True),
    ]
    with connected() as client:
        found = [token for token in client.tokens.list() if every or token.revoked_at is None]
    show_list(found, columns, output, "No tokens.")


@app.command("revoke")
def revoke(name: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the token.")]) -> None:
    """Make a token worthless at once.

    \b
    berth token revoke ci
    """
    with connected() as client:
        live = [token for token in client.tokens.list() if token.revoked_at is None]
        found = [token for token in live if name in (token.name, str(token.id))]
        if len(found) != 1:
            known = ", ".join(token.name for token in live) or "none"
            raise BadInput(f"NAME: given {name!r}; allowed: {known}")
        client.tokens.revoke(found[0].id)
    print(f"{found[0].name} revoked")
