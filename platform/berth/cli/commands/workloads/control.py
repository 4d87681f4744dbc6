"""Cancel, retry, resubmit, suspend, resume and delete workloads and arrays."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.commands.pods.metrics import MetricGoal
from berth.cli.exits import ExitCode, InvalidInput, print_rejection
from berth.cli.options.arguments import open_client, workload_names
from berth.cli.printing.arrays import CommandTarget, find_target
from berth.cli.printing.output import Output, OutputOption, show_data
from berth.cli.printing.text import print_message
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.arrays import ArrayChange, ArrayDetail
    from berth.client.models.workloads import Submission, WorkloadDetail

    Change = WorkloadDetail | ArrayChange

INDEXES_SHOWN = 20  # maximum number of task indexes shown for --worst
Targets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET...",
        help="Name, PROJECT/NAME or ID of workloads or arrays, or ARRAY[INDEXES].",
        autocompletion=workload_names,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the effects without making any changes.")
]


def cancel(
    workloads: Targets,
    worst: Annotated[
        int | None, typer.Option(min=1, help="Number of live array tasks to cancel, worst first.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric that --worst sorts by, for example loss.")
    ] = None,
    goal: Annotated[
        MetricGoal, typer.Option(help="Whether the metric's lowest or highest value is best.")
    ] = (MetricGoal.MIN),
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel workloads, arrays or selected tasks of an array.

    Running pods receive SIGTERM and, after the grace period, SIGKILL.

    \b
    berth cancel vision/train
    berth cancel sweep-1 sweep-2 sweep-3
    berth cancel 'sweep[0-99,200-300:10]'     these tasks of the array sweep
    berth cancel sweep --worst 3 --metric loss
    """
    if (worst is None) != (metric is None):
        raise InvalidInput("--worst and --metric must be used together, for example --worst 3 --metric loss")

    def change_target(client: "Client", target: CommandTarget) -> "Change":
        if worst is not None and metric is not None:
            if target.array is None or target.indexes is not None:
                raise InvalidInput(
                    "--worst compares all tasks of an array. Specify the array without indexes."
                )
            return client.arrays.cancel_worst(
                target.array.id, worst, metric, goal=goal.value, dry_run=dry_run
            )
        if target.array is not None:
            return client.arrays.cancel(target.array.id, target.indexes, dry_run=dry_run)
        return client.workloads.cancel(_workload_to_change(target, dry_run).id)

    _apply_to_targets(workloads, output, change_target, "to be cancelled" if dry_run else "cancelled")


def retry(
    arrays: Annotated[
        list[str],
        typer.Argument(
            metavar="ARRAY...",
            help="Array, as NAME, PROJECT/NAME or ID, or ARRAY[INDEXES].",
            autocompletion=workload_names,
        ),
    ],
    dry_run: DryRunOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Resubmit the failed tasks of arrays, or selected tasks that have ended.

    \b
    berth retry sweep
    berth retry 'vision/sweep[7,10-19]'
    berth retry sweep-7
    """

    def change_target(client: "Client", target: CommandTarget) -> "Change":
        return client.arrays.retry(*_find_array_and_indexes(target), dry_run=dry_run)

    _apply_to_targets(
        arrays, output, change_target, "to be submitted again" if dry_run else "submitted again"
    )


def _find_array_and_indexes(target: CommandTarget) -> tuple[str, list[int | str] | None]:
    """Return the array's ID and the selected indexes, or None for all indexes.

    Raises InvalidInput unless the target is an array or an array task.
    """
    if target.array is not None:
        return target.array.id, None if target.indexes is None else [*target.indexes]
    assert target.workload is not None
    task = target.workload.array
    if task is None:
        raise InvalidInput(
            f"{target.workload.handle} is not an array. To submit an ended workload again, run: "
            f"berth resubmit {target.workload.handle}"
        )
    return task.id, [task.index]


def resubmit(
    workloads: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD...",
            help="Name, PROJECT/NAME or ID of workloads that have ended.",
            autocompletion=workload_names,
        ),
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit ended workloads again, each as a new workload with the next free name.

    The document stays the same. For failed tasks of an array, use `berth retry`.

    \b
    berth resubmit vision/train               submits train-2
    berth resubmit train-2 ablation           submits train-3 and ablation-2
    """

    def change_target(client: "Client", target: CommandTarget) -> "Submission":
        if target.workload is None:
            assert target.array is not None
            raise InvalidInput(
                f"{target.array.handle} is an array. To submit its failed tasks again, run: "
                f"berth retry {target.array.handle}"
            )
        return client.workloads.resubmit(target.workload.id)

    _apply_to_targets(workloads, output, change_target, "submitted again")


def suspend(workloads: Targets, dry_run: DryRunOption = False, output: OutputOption = Output.TABLE) -> None:
    """Suspend workloads, arrays or selected tasks: stop their pods until they are resumed.

    \b
    berth suspend vision/train
    berth suspend sweep                       all live tasks of the array
    berth suspend 'sweep[0-99]' --dry-run
    """

    def change_target(client: "Client", target: CommandTarget) -> "Change":
        if target.array is not None:
            return client.arrays.suspend(target.array.id, target.indexes, dry_run=dry_run)
        return client.workloads.suspend(_workload_to_change(target, dry_run).id)

    _apply_to_targets(workloads, output, change_target, "to be suspended" if dry_run else "suspended")


def resume(workloads: Targets, dry_run: DryRunOption = False, output: OutputOption = Output.TABLE) -> None:
    """Resume suspended workloads, arrays or selected tasks: return them to the queue.

    \b
    berth resume vision/train
    berth resume sweep
    """

    def change_target(client: "Client", target: CommandTarget) -> "Change":
        if target.array is not None:
            return client.arrays.resume(target.array.id, target.indexes, dry_run=dry_run)
        return client.workloads.resume(_workload_to_change(target, dry_run).id)

    _apply_to_targets(workloads, output, change_target, "to be resumed" if dry_run else "resumed")


def _workload_to_change(target: CommandTarget, dry_run: bool) -> "WorkloadDetail":
    """Return the target's workload. Raises InvalidInput for a dry run, which only arrays support."""
    assert target.workload is not None
    if dry_run:
        raise InvalidInput(
            f"--dry-run applies only to arrays, but {target.workload.handle} is a workload. Omit --dry-run."
        )
    return target.workload


def delete(workloads: Targets) -> None:
    """Delete workloads and arrays that have ended, with their pods and logs. Events are kept.

    \b
    berth delete vision/train
    berth delete sweep                        the array with all of its tasks
    """
    with open_client() as client:
        for target in [find_target(client, reference) for reference in workloads]:
            if target.indexes is not None:
                raise InvalidInput(
                    "`berth delete` does not accept task indexes. To delete all tasks, name the array. "
                    "To delete one task, name its workload."
                )
            if target.array is not None:
                client.arrays.delete(target.array.id)
            elif target.workload is not None:
                client.workloads.delete(target.workload.id)
            print(f"{_workload_or_array(target).handle} deleted")


def _workload_or_array(target: CommandTarget) -> "WorkloadDetail | ArrayDetail":
    owner = target.workload or target.array
    assert owner is not None
    return owner


def _apply_to_targets(
    references: list[str],
    output: Output,
    change_target: Callable[["Client", CommandTarget], "Change | Submission"],
    result: str,
) -> None:
    """Act on each target, and continue if the server rejects an action.

    `result` is the word that messages use for the outcome, such as "cancelled".
    """
    exit_codes: list[ExitCode] = []
    with open_client() as client:
        selected = [find_target(client, reference) for reference in references]
        changed = []
        for target in selected:
            try:
                changed.append(change_target(client, target))
            except Exception as error:
                if len(selected) == 1 or not (
                    code := print_rejection(_workload_or_array(target).handle, error)
                ):
                    raise
                exit_codes.append(code)
                continue
            if not output.is_data:
                print(_describe_change(target, changed[-1], result))
                for warning in getattr(changed[-1], "warnings", ()):
                    print_message(f"warning: {warning}")
    if output.is_data:
        results = [change.to_dict() for change in changed]
        show_data(results[0] if len(selected) == 1 else results, output)
    if exit_codes:
        raise typer.Exit(exit_codes[0])


def _describe_change(target: CommandTarget, change: "Change | Submission", result: str) -> str:
    from berth.client.models.arrays import ArrayChange
    from berth.client.models.workloads import Submission

    if isinstance(change, ArrayChange):
        shown = ", ".join(map(str, change.worst[:INDEXES_SHOWN]))
        more = f" and {len(change.worst) - INDEXES_SHOWN} more" if len(change.worst) > INDEXES_SHOWN else ""
        tasks = f" ({shown}{more})" if shown else ""
        return f"{change.array.handle}: {format_count(change.changed, 'task')} {result}{tasks}"
    if isinstance(change, Submission):
        return f"{_workload_or_array(target).handle} {result} as {change.handle}"
    return f"{change.handle} is {change.phase}"
