"""`berth node`: list, cordon, drain and terminate nodes."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.columns import phase_style
from berth.cli.exits import BadInput
from berth.cli.link import connected
from berth.cli.listing import WatchOption, listing
from berth.cli.names import PoolOption, node_names
from berth.cli.output import Column, Output, OutputOption, show_one
from berth.cli.text import age, local, now, number, safe

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.machine_answers import Node

app = typer.Typer(no_args_is_help=True, help="Nodes.")
Name = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=node_names)]
Reason = Annotated[str, typer.Option(help="Kept in the history.")]


@app.command("list")
def list_nodes(
    pool: PoolOption = None,
    state: Annotated[str | None, typer.Option(help="In this state, such as ready.")] = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Nodes, with their GPUs.

    \b
    berth node list
    berth node list --pool train --state draining -o wide
    """
    with connected() as client:
        listing(
            lambda: list(client.nodes.list(pool=pool, state=state)), _columns, output, "No nodes.",
            watch=watch,
        )  # fmt: skip


@app.command("describe")
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one node: its resources, its environment and its progress while it boots.

    A node that has ended is shown in its last state, with the output of a start script that failed.

    \b
    berth node describe train-3
    """
    with connected() as client:
        node = client.nodes.get(name)
    show_one(node, output, _describe)


def _describe(node: Any) -> None:
    facts = [
        ("Name", node.name),
        ("Pool", node.pool),
        ("State", f"{node.state}, since {local(node.since)}" if node.since else node.state),
        ("Why", node.drain_reason),
        ("Free GPUs", f"{free(node)} {node.gpu_model}".strip()),
        ("Free", f"{number(node.free.cpu)} of {number(node.capacity.cpu)} cores"),
        ("Address", node.address or ""),
        ("Work", "; ".join(node.work or ())),
        ("Environment", (node.environment_digest or "")[:12] or "that of the machine"),
    ]  # fmt: skip
    for title, text in facts:
        if text:
            print(f"{title + ':':<13}{safe(text)}")
    for phase in node.phases:
        code = phase.get("exit_code")
        ended = "" if code is None else f"   exit code {code}"
        print(f"  {phase['state']:<8}{safe(phase['phase']):<20}{phase['seconds']:>6} s{ended}")
        for line in phase["message"].splitlines():
            print(f"          {safe(line)}")


@app.command("cordon")
def cordon(name: Name, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """What runs on it goes on; nothing new is placed there.

    \b
    berth node cordon train-3 --reason "fan is loud"
    """
    _do(output, lambda client: client.nodes.cordon(name, reason))


@app.command("uncordon")
def uncordon(name: Name, output: OutputOption = Output.TABLE) -> None:
    """It takes work again, also from a drain that is not over.

    \b
    berth node uncordon train-3
    """
    _do(output, lambda client: client.nodes.uncordon(name))


@app.command("drain")
def drain(name: Name, reason: Reason = "", output: OutputOption = Output.TABLE) -> None:
    """What runs on it may finish within the pool's drain timeout; then it ends and is replaced.

    \b
    berth node drain train-3 --reason "new driver"
    """
    _do(output, lambda client: client.nodes.drain(name, reason))


@app.command("terminate")
def terminate(
    name: Name,
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """It ends at once, with whatever runs on it; the pool replaces it. Names what stops, and asks.

    \b
    berth node terminate train-3 --yes
    """
    if not yes:
        with connected() as client:
            work = client.nodes.get(name).work or []
        _ask(name, work)
    _do(output, lambda client: client.nodes.terminate(name, reason))


def _ask(name: str, work: list[str]) -> None:
    if not is_person():
        raise BadInput("node terminate: nobody can be asked here; allowed: --yes")
    stops = "; ".join(map(safe, work)) or "nothing"
    typer.confirm(f"{safe(name)} ends at once. Stopped with it: {stops}. Go on?", abort=True, err=True)


def is_person() -> bool:
    return sys.stdin.isatty()


def _do(output: Output, act: "Callable[[Client], Node]") -> None:
    with connected() as client:
        changed = act(client)
    show_one(changed, output, lambda node: print(f"{safe(node.name)} is {safe(node.state)}"))


def _columns() -> list[Column]:
    return [
        Column("NAME", lambda n: n.name),
        Column("POOL", lambda n: n.pool),
        Column("STATE", lambda n: n.state, style=phase_style),
        Column("FREE GPUS", free, right=True),
        Column("FREE CPUS", lambda n: number(n.free.cpu), right=True, wide=True),
        Column("FREE MIB", lambda n: number(n.free.memory_mib), right=True, wide=True),
        Column("MODEL", lambda n: n.gpu_model or "-", spare=True),
        Column("SINCE", lambda n: age(n.since, now()), right=True, spare=True),
        Column("WORK", lambda n: "; ".join(n.work or ()) or "-", wide=True, grows=True),
    ]


def free(place: Any) -> str:
    return f"{number(place.free.gpu)}/{number(place.capacity.gpu)}"
