"""The `berth exec` command, which runs a command in a pod."""

import sys
from typing import Annotated

import typer

from berth.cli.options.arguments import WorkloadArgument, open_client


def exec_(
    workload: WorkloadArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="Command and its arguments, after --.")
    ],
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Send standard input to the command.")
    ] = False,
    terminal: Annotated[
        bool,
        typer.Option("--terminal", "-t", help="Allocate a terminal, for example for a shell."),
    ] = False,
) -> None:
    """Run a command in a pod of a running workload.

    \b
    berth exec train -- nvidia-smi
    berth exec -it train -- bash
    berth exec train --pod worker-3 -- tail -n 20 progress.txt
    berth exec -i train -- tee config.json < config.json

    The command has the user, limits, variables and working directory of the pod. It ends, with all processes
    that it started, when the connection closes or the pod ends. You need permission to control the workload.
    The exit code is that of the command, or 128 plus the number of the signal that ended it.
    """
    from berth.cli.terminal import describe_terminal, run_interactively

    if terminal and not (sys.stdin.isatty() or not interactive):
        raise typer.BadParameter(
            "--terminal and --interactive require standard input to be a terminal. To send a pipe or a file, "
            "omit --terminal."
        )
    with open_client() as client:
        selected = client.workloads.find(workload)
        size = describe_terminal() if terminal else None
        with client.workloads.open_channel(selected.id, command, pod=pod, terminal=size) as channel:
            code = run_interactively(channel, sends_input=interactive, terminal=size)
    raise typer.Exit(code)
