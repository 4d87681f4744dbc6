"""The `berth logs` command, which prints, follows and searches a pod's output."""

from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import ExitCode, exit_code_for
from berth.cli.options.arguments import WorkloadArgument, open_client

if TYPE_CHECKING:
    from berth.cli.printing.following import LineFilter, TerminalOutput
    from berth.client import Client

CHUNK = 1 << 20


def logs(
    workload: WorkloadArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the workload ends.")
    ] = False,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, help="Number of lines to print from the end of the log."),
    ] = None,
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")] = None,
    run: Annotated[int | None, typer.Option(min=1, help="Run number. Defaults to the latest run.")] = None,
    timestamps: Annotated[
        bool,
        typer.Option(
            "--timestamps",
            "-t",
            help="Prefix each line with the UTC time of its output, accurate to 2 s.",
        ),
    ] = False,
    grep: Annotated[
        str | None, typer.Option("--grep", "-g", help="Print only lines that contain this text.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Ignore case in --grep.")] = False,
    context: Annotated[
        int,
        typer.Option(
            "--context", "-C", min=0, max=20, help="Number of context lines around each --grep match."
        ),
    ] = 0,
) -> None:
    """Print the log of a pod.

    \b
    berth logs train
    berth logs vision/train --pod worker-3 --tail 20
    berth logs train --run 1              before it was evicted
    berth logs train --timestamps         with the time of each line
    berth logs -f train                   follow through evictions until the workload ends
    berth logs train --grep "loss" -C 2   search on the server, with line numbers
    berth logs -f train --grep loss       follow matching lines

    With --timestamps, lines of unknown time begin with `-`, for example lines of pods that started before
    Berth recorded times.
    With --follow, the exit code is 0 if the workload completes, 10 if it fails and 11 if it is cancelled.
    Control sequences other than colours are removed on a terminal, but not in pipes and files.
    """
    from berth.cli.printing.following import LineFilter, TerminalOutput, follow_output

    _check_options(follow, tail, grep, ignore_case, context, timestamps)
    screen = TerminalOutput()
    out = screen if grep is None else LineFilter(grep, ignore_case, screen)
    with open_client() as client:
        selected = client.workloads.find(workload)
        if follow and run is None:
            ended = follow_output(client, selected, pod, tail, out, timestamps=timestamps)
            raise typer.Exit(exit_code_for(ended.phase))
        if follow:
            for piece in client.workloads.log_stream(selected.id, pod=pod, run=run, timestamps=timestamps):
                out(piece)
            out.end()
            raise typer.Exit(ExitCode.DONE)
        if grep is not None:
            _print_matches(client, selected.id, pod, run, grep, ignore_case, context)
            return
        if tail is not None:
            out(client.workloads.log(selected.id, pod=pod, run=run, tail=tail, timestamps=timestamps).data)
        else:
            _print_full_log(client, selected.id, pod, run, out, timestamps)
        out.end()


def _check_options(
    follow: bool, tail: int | None, grep: str | None, ignore_case: bool, context: int, timestamps: bool
) -> None:
    if grep is None and (ignore_case or context):
        raise typer.BadParameter("--ignore-case and --context require --grep")
    if grep is not None and (not grep or "\n" in grep):
        raise typer.BadParameter("--grep requires a non-empty pattern without line breaks")
    if grep is not None and tail is not None:
        raise typer.BadParameter(
            "--grep searches the entire log and cannot be combined with --tail. Use only one of them."
        )
    if grep is not None and timestamps:
        raise typer.BadParameter(
            "--timestamps cannot be combined with --grep. Pipe the output to grep instead."
        )
    if follow and context:
        raise typer.BadParameter("--follow cannot be combined with --context. Use only one of them.")


def _print_full_log(
    client: "Client", workload_id: str, pod: str | None, run: int | None,
    out: "TerminalOutput | LineFilter", timestamps: bool,
) -> None:  # fmt: skip
    offset = 0
    while True:
        chunk = client.workloads.log(
            workload_id, pod=pod, run=run, offset=offset, limit=CHUNK, timestamps=timestamps
        )
        out(chunk.data)
        if not chunk.data or chunk.complete:
            return
        offset = chunk.next_offset


def _print_matches(
    client: "Client", workload_id: str, pod: str | None, run: int | None, text: str, fold: bool, context: int
) -> None:
    """Print matches as `grep` does: `12:` for a match, `11-` for context, `--` between groups."""
    from berth.cli.printing.following import TerminalOutput, format_like_grep

    screen, last = TerminalOutput(), 0
    for page in client.workloads.search_log(
        workload_id, text, pod=pod, run=run, around=context, ignore_case=fold
    ):
        for number, line in format_like_grep(page.items, last):
            needs_separator = context and last and number > last + 1
            screen(f"{'--' + chr(10) if needs_separator else ''}{line}\n".encode())
            last = number
    screen.end()
    if not last:
        typer.echo("No matching lines.", err=True)
