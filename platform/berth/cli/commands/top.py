"""`berth top`: watch the cluster or one service in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.arguments import PoolOption, ProjectOption, connected, service_names
from berth.cli.exits import invalid
from berth.cli.output import Output, OutputOption, print_items, print_section, show_data
from berth.cli.text import safe

if TYPE_CHECKING:
    from berth.cli.top.cluster import ClusterSnapshot


def top(
    *,
    pool: PoolOption = None,
    project: ProjectOption = None,
    sort: Annotated[
        str, typer.Option(help="Order of workloads: allocated, used, age or name.")
    ] = "allocated",
    service: Annotated[
        str,
        typer.Option(
            "--service",
            "-s",
            metavar="SERVICE",
            help="Service to show.",
            autocompletion=service_names,
        ),
    ] = "",
    url: Annotated[str, typer.Option(metavar="URL", help="Address of a service or its autoscaler.")] = "",
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Refresh interval in seconds.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the current values and exit.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show allocated and used resources of pools, nodes and workloads. Keys: q quits, r refreshes, s sorts.

    With --service, show the metrics, decisions and history of its autoscaler. Unknown values are a dash.

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
        raise invalid("--sort", "is not a column to sort by", sort, ", ".join(Sort))
    with connected() as client:
        if once:
            _print(look(client, pool, project, Sort(sort)), output)
            return
        look(client, pool, project, Sort(sort))  # report an error before the screen opens
        from berth.cli.top.cluster_app import ClusterTop

        ClusterTop(
            lambda by: look(client, pool, project, by), title=client.settings.address, every=every,
            sort=Sort(sort),
        ).run()  # fmt: skip


def _print(seen: "ClusterSnapshot", output: Output) -> None:
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
    from berth.cli.top.service import ServiceWatcher, watched

    what = watched(service, url)
    with ServiceWatcher(what) as watcher:
        if once is not None:
            seen = watcher.look()
            if once.is_data:
                show_data({**asdict(seen), "at": seen.at.isoformat()}, once)
            else:
                print(summary(seen))
            return
        from berth.cli.top.app import Top

        watcher.look()  # report an error before the screen opens, not on a screen
        Top(watcher.look, title=f"{what.service} on {watcher.settings.address}", every=every).run()
