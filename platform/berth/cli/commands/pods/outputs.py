"""The `berth outputs` command, which lists and downloads the outputs of workloads."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.commands.pods.metrics import MetricGoal
from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import WorkloadArgument, open_client, workload_names
from berth.cli.printing.arrays import find_target
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list
from berth.core.wording.words import format_count, format_number

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.arrays import ArrayDetail

app = typer.Typer(no_args_is_help=True, help="List and download workload outputs.")
PodOption = Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")]
RunOption = Annotated[
    int | None, typer.Option(min=1, help="Run number. Defaults to the latest run with outputs.")
]
REPORTS_SECONDS, PAUSE_SECONDS = 60.0, 1.0  # maximum time to wait for the reports of ended tasks
UNITS = ("KiB", "MiB", "GiB", "TiB")


@app.command("list")
def list_outputs(
    workload: WorkloadArgument, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """List a workload's pods that have outputs or a writable S3 volume, latest first.

    \b
    berth outputs list train
    """
    columns = [
        Column("POD", lambda row: row.pod),
        Column("RUN", lambda row: str(row.run), right=True),
        Column("VOLUME", lambda row: row.volume or "-"),
        Column("STATE", lambda row: row.state),
        Column("FILES", lambda row: format_number(row.files), right=True),
        Column("SIZE", lambda row: format_size(row.size), right=True),
        Column("MESSAGE", _describe, flexible=True),
    ]
    with open_client() as client:
        owner = client.workloads.find(workload)
        print_listing(
            lambda: list(client.outputs.list(owner.id)), lambda: columns, output,
            f"{owner.handle} has no outputs.", watch=watch,
        )  # fmt: skip


@app.command("files")
def list_files(
    workload: WorkloadArgument, pod: PodOption = None, run: RunOption = None,
    output: OutputOption = Output.TABLE,
) -> None:  # fmt: skip
    """List the stored files of a pod.

    \b
    berth outputs files train
    berth outputs files train --pod worker-1 --run 2
    """
    columns = [
        Column("PATH", lambda file: file.path),
        Column("SIZE", lambda file: format_size(file.size), right=True),
    ]
    with open_client() as client:
        owner = client.workloads.find(workload)
        files = list(client.outputs.files(owner.id, pod=pod, run=run))
        show_list(files, columns, output, f"The outputs of {owner.handle} contain no files.")


@app.command("download")
def download(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="Name, PROJECT/NAME or ID of the workload or, with --best, of the array.",
            autocompletion=workload_names,
        ),
    ],
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="File or directory. Defaults to all files.")
    ] = None,
    to: Annotated[str, typer.Option("--to", help="Directory to write to.", metavar="DIR")] = ".",
    pod: PodOption = None,
    run: RunOption = None,
    best: Annotated[
        str | None, typer.Option(help="Metric used to select the array's best task.", metavar="METRIC")
    ] = None,
    goal: Annotated[
        MetricGoal, typer.Option(help="Whether the lowest or the highest value is best.")
    ] = MetricGoal.MIN,
) -> None:
    """Download the stored files of a pod. Existing files with the same names are overwritten.

    \b
    berth outputs download train
    berth outputs download train results/model.bin --to best
    berth outputs download train --pod worker-1 --to worker-1
    berth outputs download sweep --best loss --to best      the task with the lowest loss
    """
    with open_client() as client:
        if best is None:
            owner_id, note = client.workloads.find(workload).id, ""
        else:
            owner_id, note = _best_task(client, workload, best, goal)
        written = client.outputs.download(owner_id, to, path=path, pod=pod, run=run)
    print(f"{note}{format_count(len(written), 'file')} written to {to}")


def _best_task(client: "Client", reference: str, metric: str, goal: MetricGoal) -> tuple[str, str]:
    """Return the best task's ID and a message about it.

    Raises InvalidInput if no task has reported the metric.
    """
    target = find_target(client, reference)
    if target.array is None or target.indexes is not None:
        raise InvalidInput("--best requires the name of an array without indexes.")
    _wait_for_reports(client, target.array)
    ranked = client.arrays.metrics(target.array.id, metric, goal=goal.value, limit=1)
    task = next(iter(ranked), None)
    if task is None:
        raise InvalidInput(
            f"No task of {target.array.handle} has reported {metric}. "
            f"List the metrics with `berth metrics {target.array.handle}`."
        )
    return task.id, f"Best task: {task.workload} ({metric} {task.best.value:.6g})\n"


def _wait_for_reports(client: "Client", array: "ArrayDetail") -> None:
    """Wait until the metrics of all ended tasks have been read.

    After REPORTS_SECONDS, print a warning and continue without the missing metrics.
    """
    deadline = time.monotonic() + REPORTS_SECONDS
    is_shown = False
    while unread := client.arrays.unread_tasks(array.id):
        tasks = format_count(unread, "task")
        if time.monotonic() > deadline:
            print(f"The last reports of {tasks} are missing, so another task may be better.", file=sys.stderr)
            return
        if not is_shown:
            print(f"Waiting for the last reports of {tasks} ...", file=sys.stderr, flush=True)
            is_shown = True
        time.sleep(PAUSE_SECONDS)


def _describe(row: Any) -> str:
    skipped = [f"{path} {reason}" for path, reason in row.skipped.items()]
    left_out = f"Left out: {'; '.join(skipped)}." if skipped else ""
    deleted = f"{format_count(row.deleted, 'object')} deleted." if row.deleted else ""
    return " ".join(part for part in (row.message, deleted, left_out) if part)


def format_size(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / 1024**power:.1f} {UNITS[power - 1]}"
