"""Commands `berth node` and `berth machine`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.arguments import PoolArgument, PoolOption, node_names, open_client
from berth.cli.columns import phase_style
from berth.cli.exits import BadInput, ExitCode
from berth.cli.following import print_listing
from berth.cli.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.quantities import parse_duration
from berth.cli.text import format_age, format_short_time, format_time, now, number, safe

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.pools import Node

node_app = typer.Typer(no_args_is_help=True, help="Manage nodes.")
Name = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=node_names)]
Reason = Annotated[str, typer.Option(help="Reason to record in the history.")]


@node_app.command("list")
def list_nodes(
    pool: PoolOption = None,
    state: Annotated[str | None, typer.Option(help="Node state, for example ready.")] = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List nodes.

    \b
    berth node list
    berth node list --pool train --state draining -o wide
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.nodes.list(pool=pool, state=state)), _node_columns, output, "No nodes.",
            watch=watch,
        )  # fmt: skip


@node_app.command("describe")
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one node: resources, environment and boot progress.

    A terminated node is shown in its last state, with the output of a failed boot script.

    \b
    berth node describe train-3
    """
    with open_client() as client:
        node = client.nodes.get(name)
    show_one(node, output, _describe_node)


def _describe_node(node: Any) -> None:
    fields = [
        ("Name", node.name),
        ("Pool", node.pool),
        ("State", f"{node.state}, since {format_time(node.since)}"),
        ("Reason", node.drain_reason),
        ("Not ready", node.not_ready_reason),
        ("Free GPUs", f"{format_free_gpus(node)} {node.gpu_model}".strip()),
        ("Free", f"{number(node.free.cpu)} of {number(node.capacity.cpu)} cores"),
        ("Isolation", format_isolation(node)),
        ("Limits", _format_limits(node)),
        ("Images", _format_images(node)),
        ("Seccomp", _format_seccomp(node)),
        ("Address", node.address or ""),
        ("Workloads", "; ".join(node.work or ())),
        ("Environment", (node.environment_digest or "")[:12] or "the node's own"),
    ]  # fmt: skip
    for title, text in fields:
        if text:
            print(f"{title + ':':<13}{safe(text)}")
    for phase in node.phases:
        ended = "" if phase.exit_code is None else f"   exit code {phase.exit_code}"
        print(f"  {phase.state:<8}{safe(phase.phase):<20}{phase.seconds:>6} s{ended}")
        for line in phase.message.splitlines():
            print(f"          {safe(line)}")


@node_app.command("cordon")
def cordon(name: Name, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """Cordon a node: running pods continue, but no new pods are placed on it.

    \b
    berth node cordon train-3 --reason "fan is loud"
    """
    _run_action(output, lambda client: client.nodes.cordon(name, reason))


@node_app.command("uncordon")
def uncordon(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Uncordon a node; this also stops a drain.

    \b
    berth node uncordon train-3
    """
    _run_action(output, lambda client: client.nodes.uncordon(name))


@node_app.command("drain")
def drain(name: Name, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """Drain a node: its pods may finish within the drain timeout, and then the node is replaced.

    \b
    berth node drain train-3 --reason "new driver"
    """
    _run_action(output, lambda client: client.nodes.drain(name, reason))


@node_app.command("terminate")
def terminate(
    name: Name,
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Terminate a node and its pods immediately. The pool replaces the node. Asks for confirmation.

    \b
    berth node terminate train-3 --yes
    """
    if not yes:
        with open_client() as client:
            work = client.nodes.get(name).work or []
        _confirm_termination(name, work)
    _run_action(output, lambda client: client.nodes.terminate(name, reason))


def _confirm_termination(name: str, work: list[str]) -> None:
    if not is_interactive():
        raise BadInput("node terminate asks for confirmation: run it in a terminal, or add --yes")
    stops = "; ".join(map(safe, work)) or "no workloads"
    typer.confirm(f"Terminate {safe(name)} now? This stops: {stops}.", abort=True, err=True)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def _run_action(output: Output, act: "Callable[[Client], Node]") -> None:
    with open_client() as client:
        changed = act(client)
    show_one(changed, output, lambda node: print(f"{safe(node.name)} is {safe(node.state)}"))


def _node_columns() -> list[Column]:
    return [
        Column("NAME", lambda n: n.name),
        Column("POOL", lambda n: n.pool),
        Column("STATE", lambda n: n.state, style=phase_style),
        Column("FREE GPUS", format_free_gpus, right=True),
        Column("FREE CPUS", lambda n: number(n.free.cpu), right=True, wide=True),
        Column("FREE MIB", lambda n: number(n.free.memory_mib), right=True, wide=True),
        Column("MODEL", lambda n: n.gpu_model or "-", optional=True),
        Column("ISOLATION", lambda n: n.isolation.level if n.isolation else "-", wide=True),
        Column("SINCE", lambda n: format_age(n.since, now()), right=True, optional=True),
        Column("WORKLOADS", lambda n: "; ".join(n.work or ()) or "-", wide=True, flexible=True),
    ]


def format_isolation(node: Any) -> str:
    if node.isolation is None:
        return "not reported yet"
    return f"{node.isolation.level}. {node.isolation.obstacle}".rstrip(". ")


def _format_limits(node: Any) -> str:
    if node.isolation is None:
        return ""
    enforced = ", ".join(node.isolation.limits) or "none"
    return f"{enforced}. {node.isolation.limits_obstacle}".rstrip(". ")


def _format_images(node: Any) -> str:
    if node.isolation is None:
        return ""
    runs = f"podman {node.isolation.images}" if node.isolation.images else "none"
    return f"{runs}. {node.isolation.images_obstacle}".rstrip(". ")


def _format_seccomp(node: Any) -> str:
    if node.isolation is None:
        return ""
    return f"{'filtered' if node.isolation.seccomp else 'off'}. {node.isolation.seccomp_obstacle}".rstrip(
        ". "
    )


def format_free_gpus(place: Any) -> str:
    return f"{number(place.free.gpu)}/{number(place.capacity.gpu)}"


machine_app = typer.Typer(no_args_is_help=True, help="Manage machines that joined a pool with a token.")
join_token_app = typer.Typer(no_args_is_help=True, help="Manage tokens that let machines join a pool.")
machine_app.add_typer(join_token_app, name="token")
Pool = PoolArgument


@machine_app.command("list")
def list_machines(
    pool: Pool,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Include machines that have left.")] = False,
    token: Annotated[int | None, typer.Option(help="ID of a join token: only its machines.")] = None,
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
            "No machines have joined this pool.", watch=watch,
        )  # fmt: skip


def _machine_columns(*, show_all: bool) -> list[Column]:
    moment = now()
    return [
        Column("NAME", lambda m: m.name),
        Column("STATE", lambda m: m.state),
        Column("NODE", lambda m: m.node or "-"),
        Column("GPUS", lambda m: f"{m.gpus} {m.gpu_model}".strip(), right=True),
        Column("CPUS", lambda m: number(m.cpu), right=True, optional=True),
        Column("MEMORY MIB", lambda m: str(m.memory_mib), right=True, optional=True),
        Column("LAST SEEN", lambda m: format_age(m.last_seen_at, moment), right=True),
        Column("ADDRESS", lambda m: m.address, wide=True),
        Column("JOINED", lambda m: format_time(m.joined_at), wide=True),
        Column("TOKEN", lambda m: m.token_prefix or "-", wide=True),
        Column("DEPARTED", lambda m: format_time(m.departed_at) if m.departed_at else "-", wide=not show_all),
    ]


@machine_app.command("remove")
def remove(
    pool: Pool,
    machine: Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.")],
    reason: Annotated[str, typer.Option(help="Reason to record in the history.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Drain a machine, then remove it from its pool.

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
    """Issue a token that lets machines join. The token is printed only once, as the only output on stdout.

    \b
    berth machine token issue metal --comment "rack 7" --machines 16 --expires 7d
    """
    lifetime = parse_duration("--expires", expires)
    with open_client() as client:
        token = client.node_pools.issue_join_token(pool, machines=machines, seconds=lifetime, comment=comment)
    if token.token is None:
        print(
            f"berth: token {token.id} was issued, but the connection broke first: revoke it",
            file=sys.stderr,
        )
        raise typer.Exit(ExitCode.REFUSED)
    show_one(token, output, lambda _: print(token.token))


@join_token_app.command("list")
def list_tokens(
    pool: Pool,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", help="Include used, revoked and expired tokens.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List join tokens that are still valid. The tokens themselves are not stored.

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
    show_list(tokens, columns, output, "No join tokens.")


@join_token_app.command("revoke")
def revoke(
    pool: Pool, token: Annotated[str, typer.Argument(metavar="TOKEN", help="Token ID or prefix.")]
) -> None:
    """Revoke a join token. Machines that joined with it stay in the pool.

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
            advice = f"Use one of: {ids}" if ids else f"The pool {pool} has none."
            raise BadInput(f"no open join token {token!r}. {advice}")
        client.node_pools.revoke_join_token(pool, matching[0].id)
    print(f"{matching[0].prefix}... revoked")


def _print_removal(machine: Any) -> None:
    if machine.state == "departed":
        print(f"{safe(machine.name)} has departed")
    else:
        print(f"{safe(machine.name)} departs once {safe(machine.node or 'its node')} is drained")
