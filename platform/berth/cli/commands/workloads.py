"""`berth list` and `berth describe`."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.columns import event_columns, pod_columns, workload_columns
from berth.cli.link import connected
from berth.cli.listing import listing
from berth.cli.names import WorkloadArgument
from berth.cli.output import (
    Output,
    OutputOption,
    print_fields,
    print_items,
    print_section,
    show_one,
)
from berth.cli.parameters import takes
from berth.cli.selection import Selection
from berth.cli.text import local, now, number, pairs

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.answers import Workload

EVENTS_SHOWN = 10


@takes(Selection)
def list_workloads(selection: Selection) -> None:
    """List workloads: those that have not ended, or --all.

    \b
    berth list
    berth list --project vision --phase pending --phase running
    berth list --all --label team=nlp -o json
    berth list --watch
    """
    found: list[Workload] = []

    def find() -> list["Workload"]:
        found[:] = selection.found(client)
        return found

    with connected() as client:
        listing(
            find, lambda: workload_columns(now()), selection.output, "No workloads.", watch=selection.watch
        )
    if len(found) == selection.limit:
        print(f"berth: only the first {selection.limit} are shown; see --limit", file=sys.stderr)


def describe(
    workload: WorkloadArgument,
    spec: Annotated[bool, typer.Option("--spec", help="Show only the document, as YAML.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell everything about one workload: state, pods, latest events.

    \b
    berth describe vision/train
    berth describe train --spec > train.yaml
    """
    with connected() as client:
        found = client.workloads.find(workload)
        if spec:
            from berth.cli.output import show_data

            show_data(found.spec, Output.JSON if output is Output.JSON else Output.YAML)
            return
        show_one(found, output, lambda _: _describe(client, found))


def _describe(client: "Client", workload: "Workload") -> None:
    print_fields(_fields(workload))
    pods = client.workloads.pods(workload.id)
    if pods:
        print_section("Pods")
        print_items(pods, pod_columns(now()))
    events = client.workloads.events(workload.id)[-EVENTS_SHOWN:]
    if events:
        print_section("Latest events")
        print_items(events, event_columns())


def _fields(workload: "Workload") -> list[tuple[str, str]]:
    gpus = f"{number(workload.gpus.now)} held, {number(workload.gpus.asked)} asked for"
    preemptible = "preemptible" if workload.preemptible else "not preemptible"
    ended: list[tuple[str, Any]] = [
        ("Started", local(workload.started_at) if workload.started_at else ""),
        ("Ended", local(workload.ended_at) if workload.ended_at else ""),
        ("Exit code", "" if workload.exit_code is None else str(workload.exit_code)),
    ]
    return [
        ("Workload", workload.handle),
        ("Id", workload.id),
        ("Department", workload.department),
        ("Kind", workload.kind),
        ("Phase", f"{workload.phase} since {local(workload.since)}"),
        ("Reason", workload.reason),
        ("Message", workload.message),
        ("Priority", f"{workload.priority}, {preemptible}"),
        ("GPUs", gpus),
        ("Pods", f"{workload.pods.running} of {workload.pods.wanted} running"),
        ("Pool", workload.pool or " or ".join(workload.pools)),
        ("Position", "" if workload.position is None else str(workload.position)),
        ("Expected start", local(workload.expected_start) if workload.expected_start else ""),
        ("Submitted", f"{local(workload.submitted_at)} by {workload.submitted_by or 'somebody who left'}"),
        *ended,
        ("Run", f"{workload.run} ({workload.preemptions} evictions, {workload.restarts} restarts)"),
        ("Labels", pairs(workload.labels)),
    ]
