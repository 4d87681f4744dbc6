"""`berth top`: watch the cluster or one service in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.arguments import PoolOption, ProjectOption, connected, service_names
from berth.cli.exits import BadInput
from berth.cli.output import Output, OutputOption, print_items, print_section, show_data
from berth.cli.text import safe

if TYPE_CHECKING:
    from berth.cli.top.cluster import ClusterSight


def top(
    *,
    pool: PoolOption = None,
    project: ProjectOption = None,
    sort: Annotated[str, typer.Option(help="Workloads by held, used, age or name.")] = "held",
    service: Annotated[
        str,
        typer.Option(
            "--service", "-s", metavar="SERVICE", help="One service instead.", autocompletion=service_names
        ),
    ] = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="The address of a service or its autoscaler instead.")
    ] = "",
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print what is to be seen now, and end.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Who holds what, and how much of it is used: pools, nodes, workloads. q quits, r refreshes, s sorts.

    With --service: what its autoscaler sees, decides and does. What was not measured is a dash.

    \b
    berth top
    berth top --pool train --sort used
    berth top --once -o json
    berth top --service chat
    """
    once = once or output.is_data or not sys.stdout.isatty()
    if service or url:
        _service(service, url, every, output if once else None)
        return
    from berth.cli.top.cluster import Sort, look

    if sort not in list(Sort):
        raise BadInput(f"--sort: given {sort!r}; allowed: {', '.join(Sort)}")
    with connected() as client:
        if once:
            _print(look(client, pool, project, Sort(sort)), output)
            return
        look(client, pool, project, Sort(sort))  # what cannot be seen at all is told in one line
        from berth.cli.top.cluster_app import ClusterTop

        ClusterTop(
            lambda by: look(client, pool, project, by), title=client.settings.address, every=every,
            sort=Sort(sort),
        ).run()  # fmt: skip


def _print(seen: "ClusterSight", output: Output) -> None:
    from berth.cli.top.cluster import headline, node_columns, pool_columns, workload_columns

    if output is Output.CSV:
        show_data([row.plain() for row in seen.workloads], output)
        return
    if output.is_data:
        show_data(seen.plain(), output)
        return
    print(safe(headline(seen)))
    for title, rows, columns in (
        ("Pools", seen.pools, pool_columns()),
        ("Nodes", seen.nodes, node_columns()),
        ("Workloads", seen.workloads, workload_columns(seen.at)),
    ):
        if rows:
            print_section(title)
            print_items(rows, columns, output)


def _service(service: str, url: str, every: float, once: Output | None) -> None:
    from dataclasses import asdict

    from berth.cli.top.panels import summary
    from berth.cli.top.sight import Eye, watched

    what = watched(service, url)
    with Eye(what) as eye:
        if once is not None:
            seen = eye.look()
            if once.is_data:
                show_data({**asdict(seen), "at": seen.at.isoformat()}, once)
            else:
                print(summary(seen))
            return
        from berth.cli.top.app import Top

        eye.look()  # what cannot be seen at all is told in one line, not on a screen
        Top(eye.look, title=f"{what.service} on {eye.settings.address}", every=every).run()
