"""Here we list departments, projects, node pools and nodes."""

from typing import Annotated, Any

import typer

from berth.cli.columns import phase_style
from berth.cli.link import connected
from berth.cli.output import Column, Output, OutputOption, show_list
from berth.cli.text import age, now, number

department = typer.Typer(no_args_is_help=True, help="Departments.")
project = typer.Typer(no_args_is_help=True, help="Projects.")
pool = typer.Typer(no_args_is_help=True, help="Node pools.")
node = typer.Typer(no_args_is_help=True, help="Nodes.")


@department.command("list")
def list_departments(output: OutputOption = Output.TABLE) -> None:
    """Departments that you see."""
    columns = [
        Column("NAME", lambda d: d.name),
        Column("RANK", lambda d: str(d.rank), right=True),
        Column("TITLE", lambda d: d.title, grows=True),
    ]
    with connected() as client:
        found = list(client.departments.list())
    show_list(found, columns, output, "No departments.")


@project.command("list")
def list_projects(
    department: Annotated[str | None, typer.Option(help="Of this department.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Projects that you see."""
    columns = [
        Column("NAME", lambda p: p.name),
        Column("DEPARTMENT", lambda p: p.department),
        Column("RANK", lambda p: str(p.rank), right=True),
        Column("TITLE", lambda p: p.title, grows=True),
    ]
    with connected() as client:
        found = list(client.projects.list(department))
    show_list(found, columns, output, "No projects.")


@pool.command("list")
def list_pools(output: OutputOption = Output.TABLE) -> None:
    """Node pools."""
    columns = [
        Column("NAME", lambda p: p.name),
        Column("PROVIDER", lambda p: p.provider),
        Column("RUNTIME", lambda p: p.runtime),
        Column("READY", lambda p: str(p.nodes_ready), right=True),
        Column("COMING", lambda p: str(p.nodes_pending), right=True),
        Column("GOING", lambda p: str(p.nodes_draining), right=True),
        Column("MIN", lambda p: str(p.nodes_min), right=True),
        Column("MAX", lambda p: "-" if p.nodes_max is None else str(p.nodes_max), right=True),
        Column("FREE GPUS", _free, right=True),
        Column("PAUSED", lambda p: "yes" if p.paused else "no"),
    ]
    with connected() as client:
        found = list(client.node_pools.list())
    show_list(found, columns, output, "No node pools.")


@node.command("list")
def list_nodes(
    pool: Annotated[str | None, typer.Option(help="Of this pool.")] = None,
    state: Annotated[str | None, typer.Option(help="In this state, such as ready.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Nodes, with their GPUs."""
    columns = [
        Column("NAME", lambda n: n.name),
        Column("POOL", lambda n: n.pool),
        Column("STATE", lambda n: n.state, style=phase_style),
        Column("FREE GPUS", _free, right=True),
        Column("FREE CPUS", lambda n: number(n.free.cpu), right=True, wide=True),
        Column("FREE MIB", lambda n: number(n.free.memory_mib), right=True, wide=True),
        Column("MODEL", lambda n: n.gpu_model or "-"),
        Column("SINCE", lambda n: age(n.since, now()), right=True),
    ]
    with connected() as client:
        found = list(client.nodes.list(pool=pool, state=state))
    show_list(found, columns, output, "No nodes.")


def _free(place: Any) -> str:
    return f"{number(place.free.gpu)}/{number(place.capacity.gpu)}"
