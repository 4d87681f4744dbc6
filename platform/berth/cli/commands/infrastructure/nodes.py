"""The `berth node` command, which lists, cordons, drains, upgrades and terminates nodes."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.commands.infrastructure.machines import describe_inventory
from berth.cli.exits import ExitCode, InvalidInput, print_rejection
from berth.cli.options.arguments import PoolOption, node_names, open_client
from berth.cli.printing.columns import phase_style
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    WatchOption,
    show_data,
    show_list,
    show_one,
)
from berth.cli.printing.text import format_age, format_number, format_time, printable, utc_now
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.nodes import Node

NODES_SHOWN = 10  # maximum number of names in the prompt of `berth node uncordon --pool`
node_app = typer.Typer(no_args_is_help=True, help="Manage nodes.")
Name = Annotated[str, typer.Argument(metavar="NODE", help="Node name.", autocompletion=node_names)]
Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="Node names.", autocompletion=node_names)]
OptionalNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NODE]...", help="Node names.", autocompletion=node_names),
]
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
        ("Closed", node.obstacle),
        ("Free GPUs", f"{format_free_gpus(node)} {node.gpu_model}".strip()),
        ("Free", f"{format_number(node.free.cpu)} of {format_number(node.capacity.cpu)} cores"),
        ("Foreign pods", _format_foreign_usage(node.foreign)),
        ("Isolation", format_isolation(node)),
        ("Limits", _format_limits(node)),
        ("Images", _format_images(node)),
        ("Seccomp", _format_seccomp(node)),
        *describe_inventory(node.inventory),
        ("Address", node.address or ""),
        ("Workloads", "; ".join(node.work or ())),
        ("Environment", (node.environment_digest or "")[:12] or "the node's own"),
    ]  # fmt: skip
    for title, text in fields:
        if text:
            print(f"{title + ':':<13}{printable(text)}")
    for phase in node.phases:
        ended = "" if phase.exit_code is None else f"   exit code {phase.exit_code}"
        print(f"  {phase.state:<8}{printable(phase.phase):<20}{phase.seconds:>6} s{ended}")
        for line in phase.message.splitlines():
            print(f"          {printable(line)}")


def _format_foreign_usage(foreign: Any) -> str:
    if foreign is None:
        return ""
    use = f"{foreign.gpus} GPUs, {format_number(foreign.cpu)} cores, {foreign.memory_mib:,} MiB"
    return f"{foreign.pods}, which request {use}"


@node_app.command("cordon")
def cordon(nodes: Names, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """Cordon nodes: running pods continue, but no new pods are placed on them.

    A node that is already cordoned stays unchanged. A node that cannot be cordoned does not affect the
    others.

    \b
    berth node cordon train-3 --reason "fan is loud"
    berth node cordon train-3 train-7 train-12
    """
    with open_client() as client:
        _run_actions(client, nodes, output, "cordoned", lambda name: client.nodes.cordon(name, reason))


@node_app.command("uncordon")
def uncordon(
    nodes: OptionalNames = None,
    pool: PoolOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Uncordon nodes, or all cordoned nodes of a pool. If a named node is draining, cancel the drain.

    The --pool option requires confirmation.

    \b
    berth node uncordon train-3
    berth node uncordon train-3 train-7 train-12
    berth node uncordon --pool train --yes
    """
    if bool(nodes) == (pool is not None):
        raise InvalidInput("specify nodes, or a pool with --pool")
    with open_client() as client:
        if pool is not None:
            nodes = [node.name for node in client.nodes.list(pool=pool, state="cordoned")]
            if nodes and not yes:
                _confirm_uncordon(pool, nodes)
        if not nodes and not output.is_data:
            print(f"No nodes of {printable(pool)} are cordoned.", file=sys.stderr)
            return
        _run_actions(client, nodes or [], output, "ready", client.nodes.uncordon, is_list=pool is not None)


def _confirm_uncordon(pool: str, nodes: Sequence[str]) -> None:
    if not is_interactive():
        raise InvalidInput(
            "node uncordon --pool requires confirmation. Run the command in a terminal, or add --yes."
        )
    shown = ", ".join(map(printable, nodes[:NODES_SHOWN]))
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    count = format_count(len(nodes), "node")
    typer.confirm(f"Uncordon {count} of {printable(pool)} ({shown}{more})?", abort=True, err=True)


@node_app.command("upgrade")
def upgrade(
    name: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="Node name.", autocompletion=node_names)
    ] = None,
    pool: PoolOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Upgrade the agent of a node, or all outdated agents of a pool, to the server's version.

    Running pods continue. `berth node describe` shows the version of the agent, and the reason if the upgrade
    failed. Agents of machines without a node upgrade themselves.

    \b
    berth node upgrade train-3
    berth node upgrade --pool train
    """
    if (name is None) == (pool is None):
        raise InvalidInput("specify either a node or --pool")
    with open_client() as client:
        if name is not None:
            upgraded = [client.nodes.upgrade(name)]
        else:
            nodes = [node for node in client.nodes.list(pool=pool) if _is_outdated(node)]
            upgraded = [client.nodes.upgrade(node.name) for node in nodes]
    columns = [Column("NAME", lambda n: n.name), Column("AGENT", lambda n: n.inventory.agent_version)]
    show_list(upgraded, columns, output, "All agents have the current version.")


def _is_outdated(node: Any) -> bool:
    return node.inventory is not None and node.inventory.agent_outdated


@node_app.command("drain")
def drain(nodes: Names, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """Drain nodes: running pods have until the drain timeout to finish, then the nodes are replaced.

    A node that is already draining stays unchanged. A node that cannot be drained does not affect the others.

    \b
    berth node drain train-3 --reason "new driver"
    berth node drain train-3 train-7 train-12
    """
    with open_client() as client:
        _run_actions(client, nodes, output, "draining", lambda name: client.nodes.drain(name, reason))


@node_app.command("terminate")
def terminate(
    name: Name,
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Terminate a node and its pods immediately. The pool replaces the node. Requires confirmation.

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
        raise InvalidInput(
            "node terminate requires confirmation. Run the command in a terminal, or add --yes."
        )
    stops = "; ".join(map(printable, work)) or "no workloads"
    typer.confirm(f"Terminate {printable(name)} now? This stops: {stops}.", abort=True, err=True)


def is_interactive() -> bool:
    return sys.stdin.isatty()


def _run_action(output: Output, act: "Callable[[Client], Node]") -> None:
    with open_client() as client:
        changed = act(client)
    show_one(
        changed,
        output,
        lambda node: print(f"{printable(node.name)} is {printable(node.state)}"),
    )


def _run_actions(
    client: "Client",
    names: Sequence[str],
    output: Output,
    result: str,
    act: "Callable[[str], Node]",
    *,
    is_list: bool = False,
) -> None:
    """Perform the action on each node, and continue if the server rejects it for some nodes.

    A node that is already in the state `result` counts as changed.
    """
    names = list(dict.fromkeys(names))
    exit_codes, changed = list[ExitCode](), list[Any]()
    for name in names:
        adverb = ""
        try:
            node = act(name)
        except Exception as error:
            if (current := _get_node_if_in_state(client, name, result, error)) is not None:
                node, adverb = current, "already "
            elif len(names) == 1 or (code := print_rejection(name, error)) is None:
                raise
            else:
                exit_codes.append(code)
                continue
        changed.append(node)
        if not output.is_data:
            print(f"{printable(node.name)} is {adverb}{printable(node.state)}")
    if output.is_data:
        rows = [node.to_dict() for node in changed]
        show_data(rows if is_list or len(names) > 1 else rows[0], output)
    if exit_codes:
        raise typer.Exit(exit_codes[0])


def _get_node_if_in_state(client: "Client", name: str, state: str, error: Exception) -> "Node | None":
    from berth.client.errors import Conflict

    if not isinstance(error, Conflict):
        return None
    node = client.nodes.get(name)
    return node if node.state == state else None


def _node_columns() -> list[Column]:
    return [
        Column("NAME", lambda n: n.name),
        Column("POOL", lambda n: n.pool),
        Column("STATE", lambda n: n.state, style=phase_style),
        Column("FREE GPUS", format_free_gpus, right=True),
        Column("FREE CPUS", lambda n: format_number(n.free.cpu), right=True, wide=True),
        Column("FREE MIB", lambda n: format_number(n.free.memory_mib), right=True, wide=True),
        Column("MODEL", lambda n: n.gpu_model or "-", optional=True),
        Column("ISOLATION", lambda n: n.isolation.level if n.isolation else "-", wide=True),
        Column("SINCE", lambda n: format_age(n.since, utc_now()), right=True, optional=True),
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
    if node.isolation.images == "kubernetes":
        return "run by Kubernetes"
    engine = f"podman {node.isolation.images}" if node.isolation.images else "none"
    return f"{engine}. {node.isolation.images_obstacle}".rstrip(". ")


def _format_seccomp(node: Any) -> str:
    if node.isolation is None:
        return ""
    return f"{'filtered' if node.isolation.seccomp else 'off'}. {node.isolation.seccomp_obstacle}".rstrip(
        ". "
    )


def format_free_gpus(place: Any) -> str:
    return f"{format_number(place.free.gpu)}/{format_number(place.capacity.gpu)}"
