"""The `berth simulate` and `berth trace` commands."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from berth.cli.exits import InvalidInput
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    print_fields,
    print_items,
    print_section,
    show_data,
)
from berth.cli.printing.text import print_message
from berth.core.garbage import relax_garbage_collection

if TYPE_CHECKING:
    from scheduler.simulator.replay.player import Progress
    from scheduler.simulator.replay.records import Records
    from scheduler.simulator.replay.trace import Trace


def simulate(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Scenario, YAML or JSON (`-` for stdin).")],
    cycles: Annotated[int, typer.Option(min=1, help="Number of scheduling cycles.")] = 1,
    until_stable: Annotated[
        bool, typer.Option("--until-stable", help="Run until a cycle makes no decisions.")
    ] = False,
    actions: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Comma-separated actions to run, for example allocate,reclaim."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (same as -o json).")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Simulate scheduling cycles on a cluster described in a file, without a server.

    Once the state can no longer change, the simulation skips to the last cycle.

    \b
    berth simulate cluster.yaml
    berth simulate cluster.yaml --until-stable -o json
    berth simulate cluster.yaml --actions allocate
    """
    from scheduler.simulator import run

    relax_garbage_collection()
    action_names = None if actions is None else [action.strip() for action in actions.split(",")]
    whole = as_json or output.is_data
    code, text = run("/dev/stdin" if file == "-" else file, cycles, until_stable, action_names, whole)
    if code:
        print_message(text)
        raise typer.Exit(code)
    if output.is_data and not as_json:
        show_data(json.loads(text), output)
        return
    print(text)


PolicyName = Literal["fair", "fifo", "skip", "static-fifo", "static-skip"]  # the help text lists these names
PROGRESS_INTERVAL = 100  # number of events between updates of the progress bar


def trace(
    *,
    trace_name: Annotated[
        str, typer.Argument(metavar="openb|philly|FILE", help="Public trace, CSV file or scenario.")
    ],
    data: Annotated[
        Path,
        typer.Option(metavar="DIR", envvar="BERTH_TRACES", help="Directory that contains the public traces."),
    ] = Path("data"),
    policy: Annotated[
        PolicyName,
        typer.Option(help="Scheduling policy: `fair` is Berth's policy, the others are baselines."),
    ] = "fair",
    nodes: Annotated[int | None, typer.Option(min=1, help="Number of nodes to sample.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of jobs to replay, starting with the first.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed for sampling nodes.")] = 42,
    checkpoint: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Checkpoint interval. Evicted jobs resume from their last checkpoint. "
            "By default, they start over.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (same as -o json).")] = False,
    output: OutputOption = Output.TABLE,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory for SVG plots.")] = None,
) -> None:
    """Replay a trace of jobs in simulated time. Report wait times, allocation and lost work.

    \b
    berth trace philly --data ~/traces
    berth trace philly --policy skip --jobs 5000
    berth trace philly --checkpoint 1800
    berth trace jobs.csv -o json
    berth trace cluster.yaml --plots .

    A CSV file is recognized by its header: timestamp,duration,num_gpus,cluster with *vc_nodes*.csv
    (vc,node_num) next to it, or
    name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time with
    *node_list*.csv (sn,cpu_milli,memory_mib,gpu,model). Workloads of a scenario arrive at their submission
    time and run for their runtime_seconds.
    """
    from berth.core.garbage import relax_garbage_collection
    from scheduler.simulator import ScenarioError
    from scheduler.simulator.replay.figures import summary_figures
    from scheduler.simulator.replay.files import load_trace, shrink_trace
    from scheduler.simulator.replay.records import Records

    try:
        chosen = shrink_trace(load_trace(trace_name, data), nodes, jobs, seed)
    except ScenarioError as error:
        raise InvalidInput(str(error)) from None
    relax_garbage_collection()
    records = Records(chosen)
    begin, wall = time.process_time(), time.perf_counter()
    last = _run_replay(chosen, policy, records, checkpoint)
    report = summary_figures(records, last.now) | {
        "policy": policy,
        "checkpoint_seconds": checkpoint,
        "cycles": last.cycles,
        "cpu_seconds": round(time.process_time() - begin, 2),
        "wall_seconds": round(time.perf_counter() - wall, 2),
    }
    if plots is not None:
        _write_plots(records, last.now, plots)
    if as_json or output.is_data:
        show_data(report, Output.JSON if as_json else output)
    else:
        _print_report(report)


def _run_replay(
    chosen: "Trace", policy: PolicyName, records: "Records", checkpoint: int | None
) -> "Progress":
    from scheduler.simulator.replay.player import Progress
    from scheduler.simulator.replay.policies import Policy, play

    last = Progress(chosen.cluster.now, 0, 0, 0)
    with _progress_bar(len(chosen.arrivals)) as update:
        for number, last in enumerate(play(chosen, Policy(policy), records, checkpoint=checkpoint)):
            if number % PROGRESS_INTERVAL == 0:
                update(last)
    return last


@contextmanager
def _progress_bar(whole: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} ended"),
        TimeRemainingColumn(), console=console, transient=True, disable=not sys.stderr.isatty(),
    ) as bar:  # fmt: skip
        task = bar.add_task("simulating", total=whole)
        yield lambda at: bar.update(task, completed=at.ended)


def _write_plots(records: "Records", until: int, directory: Path) -> None:
    from scheduler.simulator.replay.plots import draw_plots

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in draw_plots(records, until).items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--plots: cannot write to {directory}: {error.strerror}") from None


def _print_report(report: Mapping[str, Any]) -> None:
    cluster, jobs, evictions = report["cluster"], report["jobs"], report["evictions"]
    stopped = ", ".join(f"{count} by {kind}" for kind, count in evictions.items())
    ended = f"{jobs['completed']} completed, {jobs['never_started']} never started"
    effort = f"{report['wall_seconds']:g} s ({report['cpu_seconds']:g} s of CPU, {report['cycles']} cycles)"
    print_fields(
        [
            ("trace", f"{report['trace']}, {cluster['nodes']} nodes, {cluster['gpus']} GPUs"),
            ("policy", report["policy"]),
            ("jobs", f"{jobs['arrived']} submitted, {ended}"),
            ("queueing", _format_pending_times(report["queueing"])),
            ("first start", _format_pending_times(report["until_first_start"])),
            ("utilization", f"{report['utilization']:.1%} until the last arrival"),
            ("evictions", stopped),
            (
                "lost work",
                (
                    f"{report['lost_gpu_hours']:g} GPU-hours"
                    f"{_format_checkpoint_interval(report['checkpoint_seconds'])}"
                ),
            ),
            ("simulated", f"{timedelta(seconds=report['seconds'])} in {effort}"),
        ]
    )
    print_section("By project")
    print_items(_project_rows(report["projects"]), COLUMNS)


def _format_checkpoint_interval(every: int | None) -> str:
    return "" if every is None else f", checkpoint every {every} s"


def _format_pending_times(seconds: Mapping[str, float]) -> str:
    return (
        f"{seconds['average']:,.0f} s on average, p50 {seconds['p50']:,.0f}, "
        f"p99 {seconds['p99']:,.0f}, longest {seconds['longest']:,.0f}"
    )


def _project_rows(projects: Mapping[str, Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return [{"name": name, **project} for name, project in projects.items() if project["jobs"]]


def _seconds_formatter(kind: str, statistic: str) -> Any:
    return lambda row: f"{row[kind][statistic]:,.0f}"


COLUMNS = (
    Column("PROJECT", lambda row: row["name"], flexible=True),
    Column("JOBS", lambda row: f"{row['jobs']}", right=True),
    Column("QUOTA", lambda row: "unlimited" if row["quota"] is None else f"{row['quota']:g}", right=True),
    Column("ALLOCATED", lambda row: f"{row['gpus_held']:g}", right=True),
    Column("WAIT AVG", _seconds_formatter("queueing", "average"), right=True),
    Column("P99", _seconds_formatter("queueing", "p99"), right=True),
    Column("IN QUOTA P99", _seconds_formatter("in_quota", "p99"), right=True),
    Column("LONGEST", _seconds_formatter("in_quota", "longest"), right=True),
    Column("EVICTIONS", lambda row: f"{row['evictions']}", right=True),
    Column("LOST GPU-H", lambda row: f"{row['lost_gpu_hours']:g}", right=True),
)
