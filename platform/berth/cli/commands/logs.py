"""`berth logs`: print, follow and search the output of a pod."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.arguments import WorkloadArgument, connected
from berth.cli.exits import ExitCode, code_of_outcome

if TYPE_CHECKING:
    from berth.cli.following import Matching, Screen
    from berth.client import Client

CHUNK = 1 << 20


def logs(
    workload: WorkloadArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until it has ended.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Only the last lines.")] = None,
    pod: Annotated[str | None, typer.Option(help="Which pod: ROLE-INDEX; default: the first.")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Which run; default: the latest.")] = None,
    grep: Annotated[str | None, typer.Option("--grep", "-g", help="Only lines with this text.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="With --grep.")] = False,
    context: Annotated[
        int, typer.Option("--context", "-C", min=0, max=20, help="With --grep: so many lines around each.")
    ] = 0,
) -> None:
    """Print what a workload's pod wrote.

    \b
    berth logs train
    berth logs vision/train --pod worker-3 --tail 20
    berth logs train --run 1              before it was evicted
    berth logs -f train                   through evictions, until it has ended
    berth logs train --grep "loss" -C 2   found by the server; each with its line's number
    berth logs -f train --grep loss       those that come, too

    With --follow the exit code tells how the workload ended: 0 completed, 10 failed, 11 cancelled. On a
    terminal only text and colours are shown; a pipe or a file gets every byte.
    """
    from berth.cli.following import Matching, Screen, follow_output

    _check(follow, tail, grep, ignore_case, context)
    screen = Screen()
    out = screen if grep is None else Matching(grep, ignore_case, screen)
    with connected() as client:
        found = client.workloads.find(workload)
        if follow and run is None:
            ended = follow_output(client, found, pod, tail, out)
            raise typer.Exit(code_of_outcome(ended))
        if follow:
            for piece in client.workloads.log_stream(found.id, pod=pod, run=run):
                out(piece)
            out.end()
            raise typer.Exit(ExitCode.DONE)
        if grep is not None:
            _print_found(client, found.id, pod, run, grep, ignore_case, context)
            return
        if tail is not None:
            out(client.workloads.log(found.id, pod=pod, run=run, tail=tail).data)
        else:
            _print_whole(client, found.id, pod, run, out)
        out.end()


def _check(follow: bool, tail: int | None, grep: str | None, ignore_case: bool, context: int) -> None:
    if grep is None and (ignore_case or context):
        raise typer.BadParameter("--ignore-case and --context belong to --grep")
    if grep is not None and (not grep or "\n" in grep):
        raise typer.BadParameter("--grep takes a part of one line")
    if grep is not None and tail is not None:
        raise typer.BadParameter("--grep looks at all lines: leave out --tail")
    if follow and context:
        raise typer.BadParameter("--context cannot go with --follow: the lines after are not there yet")


def _print_whole(
    client: "Client", workload_id: str, pod: str | None, run: int | None, out: "Screen | Matching"
) -> None:
    offset = 0
    while True:
        chunk = client.workloads.log(workload_id, pod=pod, run=run, offset=offset, limit=CHUNK)
        out(chunk.data)
        if not chunk.data or chunk.complete:
            return
        offset = chunk.next_offset


def _print_found(
    client: "Client", workload_id: str, pod: str | None, run: int | None, text: str, fold: bool, context: int
) -> None:
    """As grep writes it: `12:` before a line that matches, `11-` before others, `--` between."""
    from berth.cli.following import Screen, as_grep

    screen, last = Screen(), 0
    for found in client.workloads.search_log(
        workload_id, text, pod=pod, run=run, around=context, ignore_case=fold
    ):
        for number, line in as_grep(found.items, last):
            apart = context and last and number > last + 1
            screen(f"{'--' + chr(10) if apart else ''}{line}\n".encode())
            last = number
    screen.end()
    if not last:
        typer.echo("No line contains it.", err=True)
