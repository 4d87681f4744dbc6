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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the workload ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Number of last lines to print.")
    ] = None,
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX; default: the first.")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Run number; default: the latest.")] = None,
    grep: Annotated[str | None, typer.Option("--grep", "-g", help="Print only lines with this text.")] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case in --grep.")] = False,
    context: Annotated[
        int,
        typer.Option("--context", "-C", min=0, max=20, help="Number of lines around each match of --grep."),
    ] = 0,
) -> None:
    """Print the log of a pod.

    \b
    berth logs train
    berth logs vision/train --pod worker-3 --tail 20
    berth logs train --run 1              before it was evicted
    berth logs -f train                   follow through evictions until the workload ends
    berth logs train --grep "loss" -C 2   search on the server, with line numbers
    berth logs -f train --grep loss       follow matching lines

    With --follow the exit code is 0 for a completed workload, 10 for a failed and 11 for a cancelled one. A
    terminal shows only text and colours; a pipe or a file gets every byte.
    """
    from berth.cli.following import Matching, Screen, follow_output

    _check(follow, tail, grep, ignore_case, context)
    screen = Screen()
    out = screen if grep is None else Matching(grep, ignore_case, screen)
    with connected() as client:
        selected = client.workloads.find(workload)
        if follow and run is None:
            ended = follow_output(client, selected, pod, tail, out)
            raise typer.Exit(code_of_outcome(ended))
        if follow:
            for piece in client.workloads.log_stream(selected.id, pod=pod, run=run):
                out(piece)
            out.end()
            raise typer.Exit(ExitCode.DONE)
        if grep is not None:
            _print_matches(client, selected.id, pod, run, grep, ignore_case, context)
            return
        if tail is not None:
            out(client.workloads.log(selected.id, pod=pod, run=run, tail=tail).data)
        else:
            _print_whole(client, selected.id, pod, run, out)
        out.end()


def _check(follow: bool, tail: int | None, grep: str | None, ignore_case: bool, context: int) -> None:
    if grep is None and (ignore_case or context):
        raise typer.BadParameter("--ignore-case and --context need --grep")
    if grep is not None and (not grep or "\n" in grep):
        raise typer.BadParameter("--grep takes text within one line")
    if grep is not None and tail is not None:
        raise typer.BadParameter("--grep searches all lines and excludes --tail")
    if follow and context:
        raise typer.BadParameter("--follow excludes --context")


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


def _print_matches(
    client: "Client", workload_id: str, pod: str | None, run: int | None, text: str, fold: bool, context: int
) -> None:
    """Print matches like grep: `12:` before a match, `11-` before its context, `--` between groups."""
    from berth.cli.following import Screen, as_grep

    screen, last = Screen(), 0
    for page in client.workloads.search_log(
        workload_id, text, pod=pod, run=run, around=context, ignore_case=fold
    ):
        for number, line in as_grep(page.items, last):
            apart = context and last and number > last + 1
            screen(f"{'--' + chr(10) if apart else ''}{line}\n".encode())
            last = number
    screen.end()
    if not last:
        typer.echo("No matching lines.", err=True)
