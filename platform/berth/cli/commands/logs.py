"""Here we print what a pod wrote."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import ExitCode, code_of_outcome
from berth.cli.link import WorkloadArgument, connected

if TYPE_CHECKING:
    from berth.client import Client

CHUNK = 1 << 20


def logs(
    workload: WorkloadArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until it has ended.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines.")] = None,
    pod: Annotated[str | None, typer.Option(help="Which pod: ROLE-INDEX; default: the first.")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Which run; default: the latest.")] = None,
) -> None:
    """Print what a workload's pod wrote.

    \b
    berth logs train
    berth logs vision/train --pod worker-3 --tail 20
    berth logs train --run 1              before it was evicted
    berth logs -f train                   through evictions, until it has ended

    With --follow the exit code tells how the workload ended: 0 completed, 10 failed, 11 cancelled.
    """
    from berth.cli.following import follow_output, write

    with connected() as client:
        found = client.workloads.find(workload)
        if follow and run is None:
            ended = follow_output(client, found, pod, tail)
            raise typer.Exit(code_of_outcome(ended))
        if follow:
            for piece in client.workloads.log_stream(found.id, pod=pod, run=run):
                write(piece)
            raise typer.Exit(ExitCode.DONE)
        if tail is not None:
            write(client.workloads.log(found.id, pod=pod, run=run, tail=tail).data)
            return
        _print_whole(client, found.id, pod, run)


def _print_whole(client: "Client", workload_id: str, pod: str | None, run: int | None) -> None:
    from berth.cli.following import write

    offset = 0
    while True:
        chunk = client.workloads.log(workload_id, pod=pod, run=run, offset=offset, limit=CHUNK)
        write(chunk.data)
        if not chunk.data or chunk.complete:
            return
        offset = chunk.next_offset
