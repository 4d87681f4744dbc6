"""The `berth metrics` command, which shows and compares the metrics that workloads report."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import open_client, workload_names
from berth.cli.printing.arrays import find_target
from berth.cli.printing.following import redraw_until_interrupted
from berth.cli.printing.output import (
    Column,
    Output,
    OutputOption,
    WatchOption,
    build_table,
    show_list,
    terminal_width,
)
from berth.core.backports import StrEnum
from berth.core.wording.words import format_count, format_number

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.arrays import ArrayDetail
    from berth.client.models.metrics import Metric, MetricPoint
    from berth.client.models.workloads import WorkloadDetail

BLOCKS = "▁▂▃▄▅▆▇█"
TREND_POINTS = 20
Rows = Callable[[], Sequence[Any]]


class MetricGoal(StrEnum):
    MIN = "min"
    MAX = "max"


def metrics(
    *,
    workloads: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD...",
            help="Name, PROJECT/NAME or ID of one or more workloads, or of an array.",
            autocompletion=workload_names,
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Metric, for example loss.", metavar="METRIC")
    ] = None,
    goal: Annotated[
        MetricGoal,
        typer.Option(help="Whether the lowest or the highest value among an array's tasks is best."),
    ] = MetricGoal.MIN,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of array tasks to show, best first.")
    ] = 20,
    points: Annotated[
        int, typer.Option(min=0, max=500, help="Maximum number of points per metric in JSON and YAML.")
    ] = 100,
    stops: Annotated[
        bool, typer.Option("--stops", help="Show the tasks that an array's stop rule would stop now.")
    ] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the metrics that a workload reports, or compare one metric.

    \b
    berth metrics train                          all metrics of a workload
    berth metrics train-1 train-2 --name loss    compare workloads
    berth metrics sweep --name loss              tasks of an array, lowest loss first
    berth metrics sweep --name accuracy --goal max
    berth metrics sweep --stops                  tasks that the stop rule would stop now

    Programs report metrics with `berth.report(step, loss=0.31)`.
    """
    if watch and output.is_data:
        raise InvalidInput(f"--watch cannot be combined with --output {output}. Use table or wide.")
    count = points if output.is_data else TREND_POINTS
    with open_client() as client:
        targets = [find_target(client, reference) for reference in workloads]
        arrays = [target.array for target in targets if target.array is not None]
        if arrays and (len(targets) > 1 or targets[0].indexes is not None):
            raise InvalidInput(
                "An array's metrics cover all of its tasks. Specify a single array, without indexes."
            )
        if stops and not arrays:
            raise InvalidInput("--stops requires an array, because only arrays have a stop rule.")
        if stops:
            view = _stopped_tasks_table(client, arrays[0])
        elif arrays:
            view = _array_table(client, arrays[0], name, goal, limit, count)
        else:
            chosen = [target.workload for target in targets if target.workload is not None]
            view = _workload_table(client, chosen, name, count)
        view.show(output, watch=watch)


class MetricsTable:
    """Table that can be refreshed. `note` returns the line below the table."""

    def __init__(
        self, fetch: Rows, columns: list[Column], empty: str, note: Callable[[Sequence[Any]], str]
    ) -> None:
        self._fetch, self._columns, self._empty, self._note = fetch, columns, empty, note

    def show(self, output: Output, *, watch: bool) -> None:
        if watch:
            redraw_until_interrupted(
                lambda: build_table(self._fetch(), self._columns, output, terminal_width())
            )
            return
        rows = self._fetch()
        show_list(rows, self._columns, output, self._empty)
        if rows and not output.is_data and (note := self._note(rows)):
            print(note)


def _workload_table(
    client: "Client", workloads: Sequence["WorkloadDetail"], name: str | None, points: int
) -> MetricsTable:
    if len(workloads) == 1:
        empty = f"{workloads[0].handle} has not reported any metrics."
        return MetricsTable(
            lambda: client.workloads.metrics(workloads[0].id, name=name, points=points),
            [Column("METRIC", lambda metric: metric.name), *_metric_columns(lambda metric: metric)],
            empty, lambda rows: "",
        )  # fmt: skip
    if name is None:
        raise InvalidInput("Choose the metric to compare: --name METRIC.")
    ids = [workload.id for workload in workloads]
    return MetricsTable(
        lambda: client.workloads.compare_metric(name, ids, points=points),
        [
            Column("WORKLOAD", lambda row: row.workload),
            Column("PROJECT", lambda row: row.project, optional=True),
            *_metric_columns(lambda row: row.metric),
        ],
        f"None of these workloads has reported {name}.", lambda rows: "",
    )  # fmt: skip


def _array_table(
    client: "Client", array: "ArrayDetail", name: str | None, goal: MetricGoal, limit: int, points: int
) -> MetricsTable:
    if name is None:
        name = _only_metric_name(client, array)
    metric = name

    def fetch() -> Sequence[Any]:
        return list(client.arrays.metrics(array.id, metric, goal=goal.value, points=points, limit=limit))

    def describe_best_task(rows: Sequence[Any]) -> str:
        best = rows[0]
        value = _format_number(best.best.value)
        text = f"\nBest task: {best.workload} ({metric} {value} at step {best.best.step})"
        if unread := client.arrays.unread_tasks(array.id):
            text += f"\nThe last reports of {format_count(unread, 'task')} have not been read yet."
        return text

    columns = [
        Column("TASK", lambda row: row.workload),
        Column("PHASE", lambda row: row.phase),
        Column("BEST", lambda row: _format_number(row.best.value), right=True),
        *_metric_columns(lambda row: row.metric),
    ]
    return MetricsTable(
        fetch, columns, f"No task of {array.handle} has reported {metric}.", describe_best_task
    )


def _stopped_tasks_table(client: "Client", array: "ArrayDetail") -> MetricsTable:
    columns = [
        Column("TASK", lambda stop: f"{array.name}-{stop.index}"),
        Column("STEP", lambda stop: str(stop.step), right=True),
        Column("VALUE", lambda stop: "NaN" if stop.value is None else _format_number(stop.value), right=True),
        Column("MEDIAN", lambda stop: _format_number(stop.median), right=True),
        Column("OTHERS", lambda stop: format_number(stop.tasks), right=True),
    ]
    has_rule = bool(array.spec.get("array", {}).get("stop"))
    empty = "would not stop any tasks at the moment" if has_rule else "is not set"
    return MetricsTable(
        lambda: client.arrays.stops(array.id), columns, f"The stop rule of {array.handle} {empty}.",
        lambda rows: "",
    )  # fmt: skip


def _only_metric_name(client: "Client", array: "ArrayDetail") -> str:
    names = client.arrays.metric_names(array.id)
    if len(names) > 1:
        raise InvalidInput(
            f"Choose the metric to compare: --name METRIC. The tasks report {', '.join(names)}."
        )
    if not names:
        print(f"The tasks of {array.handle} have not reported any metrics.", file=sys.stderr)
        raise typer.Exit
    return names[0]


def _metric_columns(metric: Callable[[Any], "Metric"]) -> list[Column]:
    return [
        Column("LAST", lambda row: _format_point(metric(row).last), right=True),
        Column("STEP", lambda row: _format_step(metric(row).last), right=True),
        Column("LOWEST", lambda row: _format_point(metric(row).lowest), right=True, optional=True),
        Column("HIGHEST", lambda row: _format_point(metric(row).highest), right=True, optional=True),
        Column("NOT FINITE", lambda row: str(metric(row).not_finite), right=True, wide=True),
        Column("TREND", lambda row: sparkline(metric(row).values)),
    ]


def _format_point(point: "MetricPoint | None") -> str:
    return "-" if point is None else _format_number(point.value)


def _format_step(point: "MetricPoint | None") -> str:
    return "-" if point is None else str(point.step)


def _format_number(value: float) -> str:
    return f"{value:.6g}"


def sparkline(values: Sequence[float]) -> str:
    """Return a sparkline of the values, drawn with Unicode block characters."""
    if not values:
        return ""
    low, high = min(values), max(values)
    # Halve first, because the difference between large values may overflow.
    span = (high / 2 - low / 2) or 1.0
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value / 2 - low / 2) / span * top)] for value in values)
