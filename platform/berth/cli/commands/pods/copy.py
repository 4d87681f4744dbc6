"""The `berth cp` command, which copies files to and from pods."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import open_client
from berth.cli.printing.text import print_message, printable

if TYPE_CHECKING:
    from berth.client.copies import Progress


def cp(
    source: Annotated[str, typer.Argument(metavar="SRC", help="File or directory: PATH or WORKLOAD:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Destination: PATH or WORKLOAD:PATH.")],
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")] = None,
) -> None:
    """Copy a file or directory to or from a pod of a running workload.

    \b
    berth cp data.csv train:data/
    berth cp train:out.pt .
    berth cp configs train: --pod worker-3

    Paths in the pod are relative to its working directory. If DST is a directory, SRC is copied into it;
    `SRC/.` copies the contents of a directory. Files keep their modes and times, and appear under their names
    once they are complete. The exit code is 1 if something could not be copied.
    """
    remote_source, remote_target = _split_remote_path(source), _split_remote_path(target)
    if (remote_source is None) == (remote_target is None):
        problem = "Neither path is" if remote_source is None else "Both paths are"
        raise InvalidInput(
            f"{problem} in a pod: {source!r}, {target!r}. Write exactly one of them as WORKLOAD:PATH. A "
            "local path that contains a colon must begin with ./"
        )
    with open_client() as client, _copy_progress(f"copying {source}") as report:
        if remote_target is not None:
            workload, path = remote_target
            selected = client.workloads.find(workload)
            result = client.workloads.copy_to(selected.id, source, path, pod=pod, progress=report)
        elif remote_source is not None:
            workload, path = remote_source
            selected = client.workloads.find(workload)
            result = client.workloads.copy_from(selected.id, path, target, pod=pod, progress=report)
    for message in result.skipped:
        print_message(f"left out: {message}")
    if result.skipped:
        raise typer.Exit(ExitCode.REJECTED)


def _split_remote_path(argument: str) -> tuple[str, str] | None:
    """Split a remote path into the workload and the path in its pod. Return None for a local path."""
    workload, colon, path = argument.partition(":")
    if not colon or not workload or workload.startswith((".", "/", "~")):
        return None
    return workload, path


@contextmanager
def _copy_progress(text: str) -> Iterator["Progress | None"]:
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(text), total=None)
        yield lambda size, total: bar.update(task, completed=size, total=total)
