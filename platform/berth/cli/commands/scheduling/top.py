"""The `berth top` command, which shows the cluster or one service in the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import invalid_value_error
from berth.cli.options.arguments import PoolOption, ProjectOption, open_client, service_names
from berth.cli.printing.output import Output, OutputOption, print_items, print_section, show_data
from berth.cli.printing.text import printable

if TYPE_CHECKING:
    from berth.cli.top.cluster import ClusterSnapshot


def top(
    *,
    pool: PoolOption = None,
    project: ProjectOption = None,
    sort: Annotated[
        str, typer.Option(help="Column to sort workloads by: allocated, used, age or name.")
    ] = "allocated",
    service: Annotated[
        str,
        typer.Option(
            "--service", "-s", metavar="SERVICE", help="Service to show.", autocompletion=service_names
        ),
    ] = "",
    url: Annotated[str, typer.Option(metavar="URL", help="Address of a service or its autoscaler.")] = "",
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Refresh interval in seconds.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the current values and exit.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show allocated and used resources of pools, nodes and workloads.

    Press q to quit, r to refresh and s to change the sort order.

    With --service, show the metrics, decisions and history of the service's autoscaler. A dash marks an
    unknown value.

    \b
    berth top
    berth top --pool train --sort used
    berth top --once -o json
    berth top --service chat
    """
    once = once or output.is_data or not sys.stdout.isatty()
    if service or url:
        _show_service(service, url, every, output if once else None)
        return
    from berth.cli.top.cluster import Sort, fetch_snapshot

    if sort not in list(Sort):
        raise invalid_value_error("--sort", "is not a sortable column", sort, ", ".join(Sort))
    with open_client() as client:
        if once:
            _print_snapshot(fetch_snapshot(client, pool, project, Sort(sort)), output)
            return
        fetch_snapshot(client, pool, project, Sort(sort))  # report errors before the screen opens
        from berth.cli.top.cluster_app import ClusterTop

        ClusterTop(
            lambda by: fetch_snapshot(client, pool, project, by), title=client.settings.address, every=every,
            sort=Sort(sort),
        ).run()  # fmt: skip


def _print_snapshot(snapshot: "ClusterSnapshot", output: Output) -> None:
    from berth.cli.top.cluster import headline, node_columns, pool_columns, workload_columns

    if output is Output.CSV:
        show_data([row.to_dict() for row in snapshot.workloads], output)
        return
    if output.is_data:
        show_data(snapshot.to_dict(), output)
        return
    print(printable(headline(snapshot)))
    for title, rows, columns in (
        ("Pools", snapshot.pools, pool_columns()),
        ("Nodes", snapshot.nodes, node_columns()),
        ("Workloads", snapshot.workloads, workload_columns(snapshot.at)),
    ):
        if rows:
            print_section(title)
            print_items(rows, columns, output)


def _show_service(service: str, url: str, every: float, once: Output | None) -> None:
    from dataclasses import asdict

    from berth.cli.top.panels import format_summary
    from berth.cli.top.service import ServiceWatcher, parse_service_address

    target = parse_service_address(service, url)
    with ServiceWatcher(target) as watcher:
        if once is not None:
            snapshot = watcher.fetch_snapshot()
            if once.is_data:
                show_data({**asdict(snapshot), "at": snapshot.at.isoformat()}, once)
            else:
                print(format_summary(snapshot))
            return
        from berth.cli.top.app import ServiceTop

        watcher.fetch_snapshot()  # report errors before the screen opens
        ServiceTop(
            watcher.fetch_snapshot, title=f"{target.service} on {watcher.settings.address}", every=every
        ).run()
