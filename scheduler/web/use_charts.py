"""Here what was held and used over time becomes charts and the table beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from berth.core.amounts import MILLI
from berth.web.charts import StepChart, step_chart
from scheduler.use.over_time import Point, course, step_for
from scheduler.use.told import Use

SPANS: Mapping[str, tuple[str, timedelta]] = {
    "1h": ("Hour", timedelta(hours=1)),
    "6h": ("6 hours", timedelta(hours=6)),
    "24h": ("Day", timedelta(days=1)),
    "7d": ("Week", timedelta(days=7)),
}
USUAL = "1h"
MIB_PER_GIB = 1024
ROWS = 60
Pick = Callable[[Point], int | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Used as an area, held as a line; `now` and `of` are amounts in thousandths of the unit."""

    key: str
    title: str
    unit: str
    chart: StepChart
    now: int | None
    of: int
    label: str


@dataclass(frozen=True, slots=True)
class Course:
    """`rows`: the latest points, newest first; `more` earlier ones are in the charts alone."""

    span: str
    begin: datetime
    end: datetime
    by_the_hour: bool
    charts: tuple[Chart, ...]
    rows: tuple[Point, ...]
    more: int
    has_gpus: bool


def course_of(of: Q, use: Use, *, span: str, end: datetime, now: datetime) -> Course:
    """Of the pods that `of` names, until `end`; `span`: a key of SPANS, the usual one for anything else."""
    span = span if span in SPANS else USUAL
    since = end - SPANS[span][1]
    step = step_for(since, end, now)
    points = course(of, since, end, step)
    has_gpus = bool(use.held_gpu_milli) or any(point.held_gpu_milli for point in points)
    return Course(
        span=span,
        begin=since,
        end=end,
        by_the_hour=step > 60,
        charts=_charts(points, use, step, end, has_gpus=has_gpus) if points else (),
        rows=tuple(reversed(points[-ROWS:])),
        more=max(0, len(points) - ROWS),
        has_gpus=has_gpus,
    )


def _charts(
    points: Sequence[Point], use: Use, step: int, end: datetime, *, has_gpus: bool
) -> tuple[Chart, ...]:
    drawn = [
        _chart("cpu", "Processors", "cores", points, step, end, lambda p: p.cpu_milli,
               lambda p: p.held_cpu_milli, use.cpu_milli, use.held_cpu_milli),
        _chart("memory", "Memory", "GiB", points, step, end, lambda p: _gib(p.memory_mib),
               lambda p: _gib(p.held_memory_mib), _gib(use.memory_mib), _gib(use.held_memory_mib)),
    ]  # fmt: skip
    if has_gpus:
        drawn += [
            _chart("gpu", "GPUs, by how busy they are", "GPUs", points, step, end, lambda p: p.gpu_milli,
                   lambda p: p.held_gpu_milli, use.gpu_milli, use.held_gpu_milli),
            _chart("gpu-memory", "GPU memory", "GiB", points, step, end, lambda p: _gib(p.gpu_memory_mib),
                   lambda p: _gib(p.held_gpu_memory_mib), _gib(use.gpu_memory_mib),
                   _gib(use.held_gpu_memory_mib)),
        ]  # fmt: skip
    return tuple(chart for chart in drawn if chart is not None)


def _chart(
    key: str, title: str, unit: str, points: Sequence[Point], step: int, end: datetime, used: Pick,
    held: Pick, now: int | None, of: int | None,
) -> Chart | None:  # fmt: skip
    """None where it was never measured. After the last point before a gap nothing is drawn."""
    if all(used(point) is None for point in points):
        return None
    times, values, line = list[float](), list[int](), list[int]()
    for place, point in enumerate(points):
        at = point.at.timestamp()
        times.append(at)
        values.append(used(point) or 0)
        line.append(held(point) or 0)
        following = points[place + 1].at.timestamp() if place + 1 < len(points) else end.timestamp()
        if following > at + 2 * step:
            times.append(at + step)
            values.append(0)
            line.append(0)
    drawn = step_chart(times, [("used", values)], line, end.timestamp())
    most = max(values)
    label = f"{title}: at most {most / MILLI:,.2f} {unit} used of {max(line) / MILLI:,.2f} held"
    return Chart(key, title, unit, drawn, now, of or 0, label)


def _gib(mib: int | None) -> int | None:
    """In thousandths."""
    return None if mib is None else round(mib * MILLI / MIB_PER_GIB)
