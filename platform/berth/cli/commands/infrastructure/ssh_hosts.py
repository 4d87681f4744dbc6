"""The `berth pool host` command, which manages the hosts of SSH pools."""

from typing import Annotated, Any

import typer

from berth.cli.commands.infrastructure.nodes import is_interactive
from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import PoolArgument, open_client
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption
from berth.cli.printing.text import format_age, printable, utc_now
from berth.core.problems import suggest

host_app = typer.Typer(no_args_is_help=True, help="Manage the SSH hosts of a pool.")
Pool = PoolArgument


@host_app.command("list")
def list_hosts(pool: Pool, watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List the SSH hosts of a pool with their problems.

    \b
    berth pool host list metal
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.node_pools.ssh_hosts(pool)), _columns, output, "No SSH hosts.", watch=watch
        )


@host_app.command("accept")
def accept(
    pool: Pool,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST...]", help="Hosts. Defaults to all hosts without a pinned key."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
) -> None:
    """Pin the keys that SSH hosts presented. First compare the fingerprints with those on the hosts.

    To replace a pinned key, name the host.

    \b
    berth pool host accept metal
    berth pool host accept metal gpu-1
    """
    with open_client() as client:
        listed = {host.name: host for host in client.node_pools.ssh_hosts(pool)}
        for name in hosts or ():
            if name not in listed:
                hint = suggest(name, sorted(listed))
                raise InvalidInput(f"pool {pool} has no SSH host named {name!r}. {hint}")
        chosen = [
            host
            for host in listed.values()
            if host.presented_key and (host.name in hosts if hosts else not host.host_key)
        ]
        if not chosen:
            print("No host has presented a key that is not pinned.")
            return
        for host in chosen:
            former = f" instead of {host.fingerprint}" if host.fingerprint else ""
            print(printable(f"{host.name}: {host.presented_fingerprint}{former}"))
        if not yes and is_interactive():
            typer.confirm("Pin these keys?", abort=True, err=True)
        client.node_pools.accept_host_keys(pool, {host.name: str(host.presented_key) for host in chosen})
    print("pinned")


@host_app.command("forget")
def forget(pool: Pool, host: Annotated[str, typer.Argument(metavar="HOST", help="Host name.")]) -> None:
    """Forget a removed host that can no longer be reached. The host's agent stays installed.

    \b
    berth pool host forget metal gpu-1
    """
    with open_client() as client:
        client.node_pools.forget_ssh_host(pool, host)
    print(f"{printable(host)} forgotten")


def _columns() -> list[Column]:
    moment = utc_now()
    return [
        Column("NAME", lambda h: h.name),
        Column("STATE", lambda h: h.state),
        Column("ADDRESS", _format_address),
        Column("USER", lambda h: h.user, optional=True),
        Column("LAST SEEN", lambda h: format_age(h.last_seen_at, moment) if h.last_seen_at else "-"),
        Column("HOST KEY", lambda h: h.fingerprint or "-", wide=True),
        Column("MESSAGE", lambda h: h.message or "-", flexible=True),
    ]


def _format_address(host: Any) -> str:
    return host.address if host.port == 22 else f"{host.address} port {host.port}"
