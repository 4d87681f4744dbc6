"""Ranking of an array's tasks by a metric, with a chart of the best tasks."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from berth.server.web.charts.lines import LineChart, line_chart
from projects.models import Metric, Workload, WorkloadArray
from projects.queries.reported_metrics import Goal, metric_names, ranked_tasks, to_series

RANKED_MAX, LINES_MAX, POINTS = 20, 8, 100


@dataclass(frozen=True, slots=True)
class RankedTask:
    """Task with its best and last value of the metric.

    `kind` is the CSS class of its line in the chart, or empty.
    """

    task: Workload
    best: str
    best_step: int
    last: str
    last_step: int
    kind: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """Tasks ranked by one metric, best first. `more` is the number of tasks that are not listed."""

    names: list[str]
    name: str
    goal: Goal
    tasks: list[RankedTask]
    more: int
    chart: LineChart


def load_ranking(array: WorkloadArray, name: str, goal: str) -> Ranking | None:
    """Return the ranking by the metric `name`, or else by the first metric.

    Return None if no task has reported a metric. Any goal other than `max` means `min`.
    """
    names = metric_names(array)
    if not names:
        return None
    name = name if name in names else names[0]
    chosen: Goal = "max" if goal == "max" else "min"
    ranked = ranked_tasks(array, name, chosen)
    rows = list(ranked[:RANKED_MAX])
    lines = [
        (row.workload.name, f"hue-{place}", to_series(row).downsample(POINTS))
        for place, row in enumerate(rows[:LINES_MAX])
    ]
    return Ranking(
        names=names, name=name, goal=chosen, chart=line_chart(lines),
        tasks=[_build_ranked_task(row, chosen, place) for place, row in enumerate(rows)],
        more=ranked.count() - len(rows) if len(rows) == RANKED_MAX else 0,
    )  # fmt: skip


def load_best_values(tasks: Collection[Workload], ranking: Ranking) -> dict[UUID, str]:
    """Return each task's best value of the ranking's metric. Tasks without a finite value are omitted."""
    rows = Metric.objects.filter(workload__in=[task.pk for task in tasks], name=ranking.name)
    values = rows.values_list("workload_id", f"{ranking.goal}_value")
    return {pk: f"{value:.6g}" for pk, value in values if value is not None}


def _build_ranked_task(row: Metric, goal: Goal, place: int) -> RankedTask:
    series = to_series(row)
    best, last = (series.lowest if goal == "min" else series.highest), series.last
    assert best is not None and last is not None  # the ranking omits tasks without a finite value
    return RankedTask(
        row.workload, f"{best.value:.6g}", best.step, f"{last.value:.6g}", last.step,
        f"hue-{place}" if place < LINES_MAX else "",
    )  # fmt: skip
