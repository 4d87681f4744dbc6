"""The `berth files` command, which lists, downloads and deletes the files of failed pods."""

import sys
from typing import Annotated

import typer

from berth.cli.commands.pods.outputs import format_size
from berth.cli.options.arguments import WorkloadArgument, open_client
from berth.cli.printing.columns import format_exit
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption
from berth.cli.printing.text import format_time, printable
from berth.core.wording.words import format_count

app = typer.Typer(
    no_args_is_help=True,
    help="List, download and delete files kept from failed pods (see `keep_failed_pod`).",
)
PodOption = Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first failed pod.")]
RunOption = Annotated[
    int | None, typer.Option(min=1, help="Run number. Defaults to the latest run with files.")
]
PathArgument = Annotated[
    str | None, typer.Argument(metavar="[PATH]", help="File or directory. Defaults to all files.")
]


@app.command("pods")
def list_pods(
    workload: WorkloadArgument, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """List a workload's failed pods whose files are still stored.

    \b
    berth files pods train
    """
    columns = [
        Column("POD", lambda pod: f"{pod.role}-{pod.index}"),
        Column("RUN", lambda pod: str(pod.run), right=True),
        Column("NODE", lambda pod: pod.node),
        Column("EXIT", format_exit, right=True),
        Column("FILES UNTIL", lambda pod: format_time(pod.files_until)),
        Column("MESSAGE", lambda pod: pod.message, flexible=True),
    ]
    with open_client() as client:
        owner = client.workloads.find(workload)
        print_listing(
            lambda: [pod for pod in client.workloads.pods(owner.id) if pod.files_until is not None],
            lambda: columns, output, f"{owner.handle} has no failed pods with files.", watch=watch,
        )  # fmt: skip


@app.command("list")
def list_files(
    workload: WorkloadArgument, path: PathArgument = None, pod: PodOption = None, run: RunOption = None,
    watch: WatchOption = False, output: OutputOption = Output.TABLE,
) -> None:  # fmt: skip
    """List the files of a failed pod.

    Paths begin with pod (the pod's own directory, which contains its code), tmp, var-tmp or workspace.

    \b
    berth files list train
    berth files list train pod/code --pod worker-1 --run 2
    """
    columns = [
        Column("PATH", lambda file: file.path),
        Column("SIZE", lambda file: format_size(file.size), right=True),
    ]
    with open_client() as client:
        owner = client.workloads.find(workload)
        print_listing(
            lambda: list(client.files.list(owner.id, path=path, pod=pod, run=run)),
            lambda: columns, output, f"The failed pod of {owner.handle} has no files.", watch=watch,
        )  # fmt: skip


@app.command("cat")
def cat(
    workload: WorkloadArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="File.")],
    pod: PodOption = None,
    run: RunOption = None,
) -> None:
    """Print a file of a failed pod.

    \b
    berth files cat train pod/core.txt
    """
    with open_client() as client:
        owner = client.workloads.find(workload)
        for part in client.files.read(owner.id, path, pod=pod, run=run):
            sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


@app.command("download")
def download(
    workload: WorkloadArgument,
    path: PathArgument = None,
    to: Annotated[str, typer.Option("--to", help="Directory to write to.", metavar="DIR")] = ".",
    pod: PodOption = None,
    run: RunOption = None,
) -> None:
    """Download files of a failed pod. Existing files with the same names are overwritten.

    \b
    berth files download train --to failed
    berth files download train tmp --to failed
    """
    with open_client() as client:
        owner = client.workloads.find(workload)
        written = client.files.download(owner.id, to, path=path, pod=pod, run=run)
    print(f"{format_count(len(written), 'file')} written to {to}")


@app.command("delete")
def delete(workload: WorkloadArgument, pod: PodOption = None, run: RunOption = None) -> None:
    """Delete the files of one failed pod, one run or all runs, without waiting for them to expire.

    \b
    berth files delete train
    """
    with open_client() as client:
        owner = client.workloads.find(workload)
        client.files.delete(owner.id, pod=pod, run=run)
    print(printable(f"Files of failed pods of {owner.handle} deleted"))
