"""`berth cancel`, `suspend`, `resume` and `delete`."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.exits import ExitCode, explained
from berth.cli.link import connected
from berth.cli.names import workload_names
from berth.cli.output import Output, OutputOption, show_data
from berth.cli.text import safe

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.answers import Workload

Workloads = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKLOAD...", help="NAME, PROJECT/NAME or id; several.", autocompletion=workload_names
    ),
]


def cancel(workloads: Workloads, output: OutputOption = Output.TABLE) -> None:
    """End workloads for good. Their pods get SIGTERM first, and the grace period to end by themselves.

    \b
    berth cancel vision/train
    berth cancel sweep-1 sweep-2 sweep-3
    """
    _each(workloads, output, lambda client, found: client.workloads.cancel(found.id))


def suspend(workloads: Workloads, output: OutputOption = Output.TABLE) -> None:
    """Stop workloads until they are resumed. They keep nothing but their place in the list.

    \b
    berth suspend vision/train
    """
    _each(workloads, output, lambda client, found: client.workloads.suspend(found.id))


def resume(workloads: Workloads, output: OutputOption = Output.TABLE) -> None:
    """Let suspended workloads wait for their turn again.

    \b
    berth resume vision/train
    """
    _each(workloads, output, lambda client, found: client.workloads.resume(found.id))


def delete(workloads: Workloads) -> None:
    """Remove workloads that have ended, with their pods and logs. What happened stays in the events.

    \b
    berth delete vision/train
    """
    with connected() as client:
        for workload in [client.workloads.find(reference) for reference in workloads]:
            client.workloads.delete(workload.id)
            print(f"{workload.handle} deleted")


def _each(references: list[str], output: Output, act: Callable[["Client", "Workload"], "Workload"]) -> None:
    """All names are looked up before the first is acted on. Who is refused is named, and holds up nobody."""
    refused: list[ExitCode] = []
    with connected() as client:
        found = [client.workloads.find(reference) for reference in references]
        changed = []
        for workload in found:
            try:
                changed.append(act(client, workload))
            except Exception as error:
                if len(found) == 1 or not (code := _told(workload, error)):
                    raise
                refused.append(code)
                continue
            if not output.is_data:
                print(f"{changed[-1].handle} is {changed[-1].phase}")
    if output.is_data:
        answers = [workload.plain() for workload in changed]
        show_data(answers[0] if len(found) == 1 else answers, output)
    if refused:
        raise typer.Exit(refused[0])


def _told(workload: "Workload", error: Exception) -> ExitCode | None:
    """Of one among several; nothing where it is not about this one."""
    from berth.client.errors import Conflict, Forbidden, NotFound

    told = explained(error) if isinstance(error, Conflict | Forbidden | NotFound) else None
    if told is None:
        return None
    for line in told[1]:
        print(f"berth: {workload.handle}: {safe(line)}", file=sys.stderr)
    return told[0]
