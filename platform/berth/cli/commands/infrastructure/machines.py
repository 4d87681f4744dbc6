"""The `berth machine` command, which lists and removes machines and manages join tokens."""

from collections import Counter
from typing import Annotated, Any

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import PoolArgument, open_client
from berth.cli.options.quantities import parse_duration
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.printing.text import (
    format_age,
    format_number,
    format_short_time,
    format_time,
    print_message,
    printable,
    utc_now,
)

machine_app = typer.Typer(no_args_is_help=True, help="Manage machines that joined a pool with a token.")
join_token_app = typer.Typer(no_args_is_help=True, help="Manage tokens that let machines join a pool.")
machine_app.add_typer(join_token_app, name="token")
Pool = PoolArgument
MachineName = Annotated[str, typer.Argument(metavar="MACHINE", help="Machine name.")]


@machine_app.command("list")
def list_machines(
    pool: Pool,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Include machines that have left the pool.")
    ] = False,
    token: Annotated[
        int | None, typer.Option(help="Join token ID. Lists only machines that joined with this token.")
    ] = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the machines of a pool.

    \b
    berth machine list metal
    berth machine list metal --token 12 --all
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.node_pools.machines(pool, departed=show_all, token=token)),
            lambda: _machine_columns(show_all=show_all), output,
            "No machines have joined this pool. Issue a token with `berth machine token issue POOL`.",
            watch=watch,
        )  # fmt: skip


def _machine_columns(*, show_all: bool) -> list[Column]:
    moment = utc_now()
    return [
        Column("NAME", lambda m: m.name),
        Column("STATE", lambda m: m.state),
        Column("NODE", lambda m: m.node or "-"),
        Column("GPUS", lambda m: f"{m.gpus} {m.gpu_model}".strip(), right=True),
        Column("CPUS", lambda m: format_number(m.cpu), right=True, optional=True),
        Column("MEMORY MIB", lambda m: format_number(m.memory_mib), right=True, optional=True),
        Column("LAST SEEN", lambda m: format_age(m.last_seen_at, moment), right=True),
        Column("ADDRESS", lambda m: m.address, wide=True),
        Column("JOINED", lambda m: format_time(m.joined_at), wide=True),
        Column("DRIVER", lambda m: (m.inventory.gpu_driver if m.inventory else "") or "-", wide=True),
        Column("AGENT", lambda m: (m.inventory.agent_version if m.inventory else "") or "-", wide=True),
        Column("TOKEN", lambda m: m.token_prefix or "-", wide=True),
        Column("DEPARTED", lambda m: format_time(m.departed_at) if m.departed_at else "-", wide=not show_all),
    ]


@machine_app.command("describe")
def describe_machine(pool: Pool, machine: MachineName, output: OutputOption = Output.TABLE) -> None:
    """Show one machine: hardware, software and current node.

    \b
    berth machine describe metal rack7-3
    """
    with open_client() as client:
        described = client.node_pools.machine(pool, machine)
    show_one(described, output, _describe_machine)


def _describe_machine(machine: Any) -> None:
    fields = [
        ("Name", machine.name),
        ("State", machine.state),
        ("Node", machine.node or ""),
        ("GPUs", f"{machine.gpus} {machine.gpu_model}".strip()),
        ("CPUs", format_number(machine.cpu)),
        ("Memory", f"{machine.memory_mib:,} MiB"),
        *describe_inventory(machine.inventory),
        ("Address", machine.address),
        ("Joined", format_time(machine.joined_at)),
        ("Last seen", format_time(machine.last_seen_at)),
    ]
    for title, text in fields:
        if text:
            print(f"{title + ':':<13}{printable(text)}")


@machine_app.command("remove")
def remove(
    pool: Pool,
    machine: MachineName,
    reason: Annotated[str, typer.Option(help="Reason to record in the history.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Drain a machine and remove it from its pool.

    The machine must have joined with a token. To remove an SSH host, use `berth pool edit POOL --hosts FILE`.

    \b
    berth machine remove metal rack7-3 --reason "goes back to the vendor"
    """
    with open_client() as client:
        removed = client.node_pools.remove_machine(pool, machine, reason)
    show_one(removed, output, _print_removal)


@join_token_app.command("issue")
def issue(
    pool: Pool,
    machines: Annotated[int, typer.Option(help="Number of machines that may join.", min=1)] = 1,
    expires: Annotated[str, typer.Option(help="Lifetime, at most 365d.")] = "1h",
    comment: Annotated[str, typer.Option(help="Purpose of the token.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Issue a join token for machines. The token is printed only once, as the only output on stdout.

    \b
    berth machine token issue metal --comment "rack 7" --machines 16 --expires 7d
    """
    lifetime = parse_duration("--expires", expires)
    with open_client() as client:
        token = client.node_pools.issue_join_token(pool, machines=machines, seconds=lifetime, comment=comment)
    if token.token is None:
        print_message(
            f"token {token.id} was issued, but the connection was lost before it arrived. Revoke it "
            "and issue another one."
        )
        raise typer.Exit(ExitCode.REJECTED)
    show_one(token, output, lambda _: print(token.token))


@join_token_app.command("list")
def list_tokens(
    pool: Pool,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Include used, revoked and expired tokens.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List valid join tokens. Token secrets are not stored.

    \b
    berth machine token list metal
    """
    columns = [
        Column("ID", lambda t: str(t.id), right=True),
        Column("PREFIX", lambda t: t.prefix),
        Column("STATE", lambda t: t.state),
        Column("COMMENT", lambda t: t.comment or "-", flexible=True),
        Column(
            "EXPIRES", lambda t: format_time(t.expires_at), brief=lambda t: format_short_time(t.expires_at)
        ),
        Column("BY", lambda t: t.issued_by),
        Column("JOINED", lambda t: f"{t.machines_joined}/{t.max_machines}", right=True),
    ]
    with open_client() as client:
        tokens = [token for token in client.node_pools.join_tokens(pool) if show_all or token.state == "open"]
    show_list(tokens, columns, output, "No join tokens. Issue one with `berth machine token issue POOL`.")


@join_token_app.command("revoke")
def revoke(
    pool: Pool, token: Annotated[str, typer.Argument(metavar="TOKEN", help="Token ID or prefix.")]
) -> None:
    """Revoke a join token. Machines that joined with the token stay in the pool.

    \b
    berth machine token revoke metal 12
    """
    with open_client() as client:
        live = [
            join_token for join_token in client.node_pools.join_tokens(pool) if join_token.state == "open"
        ]
        matching = [join_token for join_token in live if token in (str(join_token.id), join_token.prefix)]
        if len(matching) != 1:
            ids = ", ".join(str(join_token.id) for join_token in live)
            advice = f"Use one of: {ids}" if ids else f"Pool {pool} has no open join tokens."
            raise InvalidInput(f"no open join token has the ID or prefix {token!r}. {advice}")
        client.node_pools.revoke_join_token(pool, matching[0].id)
    print(f"{matching[0].prefix}... revoked")


def _print_removal(machine: Any) -> None:
    if machine.state == "departed":
        print(f"{printable(machine.name)} has left the pool")
    else:
        print(
            f"{printable(machine.name)} will leave the pool once "
            f"{printable(machine.node or 'its node')} is drained"
        )


def describe_inventory(inventory: Any) -> list[tuple[str, str]]:
    """Return the machine's inventory, as reported by its agent, in (title, value) pairs."""
    if inventory is None:
        return []
    gpus = Counter(f"{gpu.model} with {gpu.memory_mib:,} MiB" for gpu in inventory.gpus)
    disk = f"{inventory.disk_free_mib} of {inventory.disk_mib} MiB free" if inventory.disk_mib else ""
    return [
        ("Devices", "; ".join(f"{count} {gpu}" for gpu, count in gpus.items())),
        ("GPU driver", inventory.gpu_driver),
        ("Processor", inventory.cpu_model),
        ("Disk", disk),
        ("System", f"{inventory.os}, kernel {inventory.kernel}, {inventory.architecture}"),
        ("Python", inventory.python),
        ("Agent", inventory.agent_version + (" (outdated)" if inventory.agent_outdated else "")),
        ("Upgrade", inventory.upgrade_error),
    ]
