"""`berth open`: open a port of an interactive workload in a browser."""

from typing import Annotated

import typer

from berth.cli.link import connected
from berth.cli.names import WorkloadArgument


def open_port(
    workload: WorkloadArgument,
    port: Annotated[str | None, typer.Option("--port", "-p", help="Which one; default: the first.")] = None,
    just_print: Annotated[bool, typer.Option("--print", help="Print the link instead.")] = False,
) -> None:
    """Open a port of a running interactive workload in a browser.

    \b
    berth open desk
    berth open vision/desk --port tensorboard
    berth open desk --print               for a browser on another machine

    The link works once, within a minute.
    """
    import webbrowser

    with connected() as client:
        found = client.workloads.find(workload)
        link = client.workloads.link_to_port(found.id, port or _first(found.spec, found.handle))
    if just_print or not webbrowser.open(link.url):
        print(link.url)


def _first(spec: dict[str, object], handle: str) -> str:
    ports = spec.get("ports")
    if not isinstance(ports, list) or not ports:
        raise typer.BadParameter(f"{handle} names no ports in its document.", param_hint="workload")
    return str(ports[0]["name"])
