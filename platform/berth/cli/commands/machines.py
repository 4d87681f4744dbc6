"""`berth machine`: machines that joined a pool, and their join tokens."""

import sys
from typing import Annotated, Any

import typer

from berth.cli.exits import BadInput, ExitCode
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import PoolArgument
from berth.cli.output import Column, Output, OutputOption, show_list, show_one
from berth.cli.quantities import seconds
from berth.cli.text import age, local, now, number, safe, short

app = typer.Typer(no_args_is_help=True, help="Machines that joined a pool by a token.")
tokens = typer.Typer(no_args_is_help=True, help="Tokens by which machines join a pool.")
app.add_typer(tokens, name="token")
Pool = PoolArgument


@app.command("list")
def list_machines(
    pool: Pool,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also those that left.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Machines of a pool: free, used, leaving, or silent.

    \b
    berth machine list metal
    """
    with connected() as client:
        listing(
            lambda: list(client.node_pools.machines(pool, left=every)), lambda: _columns(every=every), output,
            "No machine has joined this pool.", watch=watch,
        )  # fmt: skip


def _columns(*, every: bool) -> list[Column]:
    moment = now()
    return [
        Column("NAME", lambda m: m.name),
        Column("STATE", lambda m: m.state),
        Column("NODE", lambda m: m.node or "-"),
        Column("GPUS", lambda m: f"{m.gpus} {m.gpu_model}".strip(), right=True),
        Column("CPUS", lambda m: number(m.cpu), right=True, spare=True),
        Column("MIB", lambda m: str(m.memory_mib), right=True, spare=True),
        Column("CALLED", lambda m: age(m.seen_at, moment), right=True),
        Column("ADDRESS", lambda m: m.address, wide=True),
        Column("JOINED", lambda m: local(m.joined_at), wide=True),
        Column("LEFT", lambda m: local(m.left_at) if m.left_at else "-", wide=not every),
    ]


@app.command("remove")
def remove(
    pool: Pool,
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.")],
    reason: Annotated[str, typer.Option(help="Kept in the history.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a machine out of its pool. What runs on it may finish within the pool's drain timeout.

    \b
    berth machine remove metal rack7-3 --reason "goes back to the vendor"
    """
    with connected() as client:
        gone = client.node_pools.remove_machine(pool, machine, reason)
    show_one(gone, output, _say_how_it_goes)


@tokens.command("issue")
def issue(
    pool: Pool,
    expires: Annotated[str, typer.Option(help="After so long, at most 7d.")] = "1h",
    note: Annotated[str, typer.Option(help="What it is for, to recognise it by.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """A token that lets one machine join. It is printed this once, alone on stdout.

    \b
    berth machine token issue metal --note "rack 7" --expires 2h
    """
    lasts = seconds("--expires", expires)
    with connected() as client:
        token = client.node_pools.issue_join_token(pool, seconds=lasts, note=note)
    if token.token is None:
        lost = f"berth: token {token.id} was issued, but it was lost with the connection: revoke it"
        print(lost, file=sys.stderr)
        raise typer.Exit(ExitCode.REFUSED)
    show_one(token, output, lambda _: print(token.token))


@tokens.command("list")
def list_tokens(
    pool: Pool,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also used, revoked and expired ones.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """By which a machine may still join; the tokens themselves are not kept anywhere.

    \b
    berth machine token list metal
    """
    columns = [
        Column("ID", lambda t: str(t.id), right=True),
        Column("BEGINS", lambda t: t.prefix),
        Column("STATE", lambda t: t.state),
        Column("FOR", lambda t: t.note or "-", grows=True),
        Column("EXPIRES", lambda t: local(t.expires_at), brief=lambda t: short(t.expires_at)),
        Column("BY", lambda t: t.issued_by),
        Column("MACHINE", lambda t: t.used_by or "-", wide=not every),
    ]
    with connected() as client:
        found = [token for token in client.node_pools.join_tokens(pool) if every or token.state == "open"]
    show_list(found, columns, output, "No tokens.")


@tokens.command("revoke")
def revoke(
    pool: Pool, token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, or how it begins.")]
) -> None:
    """Nobody joins by it from now on.

    \b
    berth machine token revoke metal 12
    """
    with connected() as client:
        live = [known for known in client.node_pools.join_tokens(pool) if known.state == "open"]
        found = [known for known in live if token in (str(known.id), known.prefix)]
        if len(found) != 1:
            known_ids = ", ".join(str(known.id) for known in live) or "none"
            raise BadInput(f"TOKEN: given {token!r}; allowed: {known_ids}")
        client.node_pools.revoke_join_token(pool, found[0].id)
    print(f"{found[0].prefix}... revoked")


def _say_how_it_goes(machine: Any) -> None:
    if machine.state == "left":
        print(f"{safe(machine.name)} has left")
    else:
        print(f"{safe(machine.name)} leaves once {safe(machine.node or 'its node')} is drained")
