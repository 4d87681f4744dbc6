"""List, describe, explain and open workloads and arrays."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.options.arguments import WorkloadArgument, open_client, with_options_from
from berth.cli.options.listing import ListOptions
from berth.cli.printing.arrays import find_target, print_array
from berth.cli.printing.columns import event_columns, format_cost, pod_columns, workload_columns
from berth.cli.printing.dependencies import print_dependencies
from berth.cli.printing.explain import format_blocker_numbers, format_expected_start, format_queue_lines
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import (
    Output,
    OutputOption,
    print_fields,
    print_items,
    print_section,
    show_data,
    show_one,
)
from berth.cli.printing.text import (
    format_duration,
    format_number,
    format_pairs,
    format_time,
    format_value,
    print_message,
    printable,
    utc_now,
)
from berth.core.wording.retry_counts import format_retries
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.cli.printing.arrays import ArrayRow
    from berth.client import Client
    from berth.client.models.arrays import ArrayDetail
    from berth.client.models.scheduling import Eviction, Explanation, SmallestChange
    from berth.client.models.workloads import RunImage, Workload, WorkloadDetail

EVENTS_SHOWN = 10


@with_options_from(ListOptions)
def list_workloads(options: ListOptions) -> None:
    """List workloads. Each array is one row that shows its progress.

    Use --all to include workloads that have ended, and --tasks for the tasks of arrays.

    \b
    berth list
    berth list --project vision --phase pending --phase running
    berth list --all --label team=nlp -o json
    berth list --array sweep --phase failed --all
    berth list --watch
    """
    shown: list[Workload | ArrayRow] = []

    def find() -> list["Workload | ArrayRow"]:
        shown[:] = options.rows(client)
        return shown

    with open_client() as client:
        print_listing(
            find, lambda: workload_columns(utc_now()), options.output, "No workloads.", watch=options.watch
        )
    if len(shown) == options.limit:
        print_message(f"only the first {options.limit} workloads are shown; see --limit")


def describe(
    workload: WorkloadArgument,
    spec: Annotated[bool, typer.Option("--spec", help="Print only the workload document, as YAML.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one workload with its pods and latest events, or an array with its progress.

    \b
    berth describe vision/train
    berth describe sweep
    berth describe train --spec > train.yaml
    """
    with open_client() as client:
        target = find_target(client, workload)
        selected = target.workload or target.array
        assert selected is not None
        if spec:
            show_data(selected.spec, Output.JSON if output is Output.JSON else Output.YAML)
        elif target.workload is not None:
            show_one(target.workload, output, lambda shown: _print_workload(client, shown))
        else:
            show_one(selected, output, lambda shown: _print_array(client, shown))


def _print_workload(client: "Client", workload: "WorkloadDetail") -> None:
    print_fields(_workload_fields(workload))
    print_dependencies(client.workloads.dependencies(workload.id))
    pods = client.workloads.pods(workload.id)
    if pods:
        print_section("Pods")
        print_items(pods, pod_columns(utc_now()))
    events = client.workloads.events(workload.id)[-EVENTS_SHOWN:]
    if events:
        print_section("Latest events")
        print_items(events, event_columns())


def _print_array(client: "Client", array: "ArrayDetail") -> None:
    print_array(array)
    print_dependencies(client.arrays.dependencies(array.id))


def _workload_fields(workload: "WorkloadDetail") -> list[tuple[str, str]]:
    gpus = f"{format_number(workload.gpus.now)} allocated, {format_number(workload.gpus.requested)} requested"
    preemptible = "preemptible" if workload.preemptible else "non-preemptible"
    evictions, restarts = (
        format_count(workload.preemptions, "eviction"),
        format_count(workload.restarts, "restart"),
    )
    ended: list[tuple[str, Any]] = [
        ("Started", format_time(workload.started_at) if workload.started_at else ""),
        ("Ended", format_time(workload.ended_at) if workload.ended_at else ""),
        ("Exit code", "" if workload.exit_code is None else str(workload.exit_code)),
    ]
    return [
        ("Workload", workload.handle),
        ("ID", workload.id),
        ("Department", workload.department),
        ("Kind", workload.kind),
        ("Phase", f"{workload.phase} since {format_time(workload.since)}"),
        ("Reason", workload.reason),
        ("Message", workload.message),
        ("Priority", f"{workload.priority}, {preemptible}"),
        ("GPUs", gpus),
        ("Pods", f"{workload.pods.running} of {workload.pods.maximum} running"),
        ("Pool", workload.pool or " or ".join(workload.pools)),
        ("Queue position", "" if workload.queue_position is None else str(workload.queue_position)),
        ("Expected start", format_time(workload.expected_start) if workload.expected_start else ""),
        ("Submitted", f"{format_time(workload.submitted_at)} by {workload.submitted_by or 'a deleted user'}"),
        *ended,
        ("Cost", format_cost(workload.cost)),
        ("Idle GPUs", workload.idle.sentence if workload.idle else ""),
        ("Run", f"{workload.run} ({evictions}, {restarts})"),
        ("Retries", format_retries(workload.retries)),
        ("Avoided nodes", ", ".join(workload.avoided_nodes)),
        ("Image", workload.spec.get("image") or ""),
        ("Digest", f"{image.digest} (run {image.run})" if (image := _latest_image(workload)) else ""),
        ("Code", _format_code(workload)),
        ("Labels", format_pairs(workload.labels)),
    ]


def _format_code(workload: "WorkloadDetail") -> str:
    """Describe the workload's code, for example "3b18e512db on main, modified, 12 files, 1.2 MiB"."""
    code = workload.code
    if code is None:
        return ""
    from berth.client.code import format_size

    branch, state = f" on {code.branch}" if code.branch else "", ", modified" if code.dirty else ""
    size = "expired"
    if code.git is not None and code.git.state != "fetched":
        return f"{code.git.url}, {'not fetched yet' if code.git.state == 'waiting' else 'not fetched'}"
    if code.files is not None and code.size is not None:
        size = f"{format_count(code.files, 'file')}, {format_size(code.size)}"
    source = f" from {code.git.url}" if code.git is not None else ""
    return f"{(code.commit or code.tree or '')[:10]}{branch}{state}{source}, {size}"


def _latest_image(workload: "WorkloadDetail") -> "RunImage | None":
    return next((image for image in workload.images if image.digest), None)


def why(workload: WorkloadArgument, output: OutputOption = Output.TABLE) -> None:
    """Explain why a workload is pending and what would start it, or why it was evicted.

    \b
    berth why vision/train
    berth why train -o json
    """
    with open_client() as client:
        selected = client.workloads.find(workload)
        explanation = client.workloads.explain(selected.id)
        change = None if explanation.phase != "pending" else _smallest_change(client, selected)
    if output.is_data:
        show_data({**explanation.to_dict(), "smallest_change": change and change.to_dict()}, output)
    else:
        _print_explanation(selected, explanation, change)


def _smallest_change(client: "Client", workload: "Workload") -> "SmallestChange | None":
    """Return the smallest change that lets the workload start, or None if the server cannot name one."""
    from berth.client.errors import Rejected

    try:
        return client.workloads.smallest_change(workload.id)
    except Rejected:
        return None


def _print_explanation(
    workload: "Workload", explanation: "Explanation", change: "SmallestChange | None"
) -> None:
    reason = f": {explanation.reason}" if explanation.reason else ""
    print(printable(f"{workload.handle} is {explanation.phase}{reason}"))
    if explanation.message and explanation.message not in {
        blocker.message for blocker in explanation.blockers
    }:
        print(f"  {printable(explanation.message)}")
    for blocker in explanation.blockers:
        print(f"\n{printable(blocker.reason)}: {printable(blocker.message)}")
        if blocker.numbers:
            print(f"  {format_blocker_numbers(blocker.numbers)}")
    if explanation.queue_position is not None:
        print_section(f"Queue position {explanation.queue_position}{_pool_suffix(workload)}")
        for line in explanation.ordering:
            print(f"  {printable(line)}")
    if line := format_expected_start(
        explanation.expected_start, explanation.expected_start_reason, explanation.expected_start_after
    ):
        print(f"\n{printable(line)}")
    for sentence in (explanation.burst, explanation.idle, change.sentence if change else ""):
        if sentence:
            print(f"\n{printable(sentence)}")
    if lines := list(format_queue_lines(explanation.queue)):
        print_section("Queues")
        for line in lines:
            print(f"  {printable(line)}")
    _print_history(explanation)
    if explanation.explained_at is not None:
        cycle = (
            f" by cycle {format_value(explanation.cycle)}" if isinstance(explanation.cycle, int | str) else ""
        )
        print(f"\nAs of {format_time(explanation.explained_at)}{cycle}")


def _print_history(explanation: "Explanation") -> None:
    if len(explanation.pending_history) > 1:
        print_section("Pending time by reason")
        for interval in explanation.pending_history:
            duration = format_duration(((interval.until or utc_now()) - interval.since).total_seconds())
            print(
                f"  {format_time(interval.since)}  {printable(interval.reason)} {duration}"
                f"{'' if interval.until else ' so far'}"
            )
    if explanation.evictions:
        print_section("Evictions")
        for eviction in explanation.evictions:
            _print_eviction(eviction)


def _pool_suffix(workload: "Workload") -> str:
    return f" in {workload.pools[0]}" if workload.pools else ""


def _print_eviction(eviction: "Eviction") -> None:
    print(f"  {format_time(eviction.at)}  {eviction.kind}: {printable(eviction.summary)}")
    for line in eviction.explanation:
        print(f"    {printable(line)}")


def open_port(
    workload: WorkloadArgument,
    port: Annotated[
        str | None, typer.Option("--port", "-p", help="Port name. Defaults to the first port.")
    ] = None,
    just_print: Annotated[
        bool, typer.Option("--print", help="Print the link instead of opening a browser.")
    ] = False,
) -> None:
    """Open a port of a running interactive workload in a browser.

    \b
    berth open desk
    berth open vision/desk --port tensorboard
    berth open desk --print               for a browser on another machine

    The link works once and expires after a minute.
    """
    import webbrowser

    with open_client() as client:
        selected = client.workloads.find(workload)
        link = client.workloads.create_port_link(
            selected.id, port or _first_port(selected.spec, selected.handle)
        )
    if just_print or not webbrowser.open(link.url):
        print(link.url)


def _first_port(spec: dict[str, object], handle: str) -> str:
    ports = spec.get("ports")
    if not isinstance(ports, list) or not ports:
        raise typer.BadParameter(
            f"{handle} declares no ports. Add `ports` to the workload's document, and submit the workload "
            "again.",
            param_hint="workload",
        )
    return str(ports[0]["name"])
