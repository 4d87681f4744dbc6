"""`berth simulate`: run a scenario without a server."""

import json
import sys
from typing import Annotated

import typer

from berth.cli.output import Output, OutputOption, show_data
from berth.cli.text import safe
from berth.core.garbage import collect_rarely


def simulate(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A scenario, YAML or JSON; - is stdin.")],
    cycles: Annotated[int, typer.Option(min=1, help="So many scheduling cycles.")] = 1,
    until_stable: Annotated[
        bool, typer.Option("--until-stable", help="Until a cycle decides nothing more.")
    ] = False,
    actions: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only these actions, such as allocate,reclaim.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Play scheduling cycles on a cluster described in a file. No server is asked.

    Once nothing can change any more, only the last cycle is still played.

    \b
    berth simulate cluster.yaml
    berth simulate cluster.yaml --until-stable -o json
    berth simulate cluster.yaml --actions allocate
    """
    from scheduler.engine.scenario import run

    collect_rarely()
    named = None if actions is None else [word.strip() for word in actions.split(",")]
    whole = as_json or output.is_data
    code, text = run("/dev/stdin" if file == "-" else file, cycles, until_stable, named, whole)
    if code:
        print(f"berth: {safe(text)}", file=sys.stderr)
        raise typer.Exit(code)
    if output.is_data and not as_json:
        show_data(json.loads(text), output)
        return
    print(text)
