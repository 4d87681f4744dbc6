"""Selectable columns of the workload list."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.conf import settings
from django.db.models import Min
from django.http import QueryDict
from django.utils import timezone

from berth.core.values.amounts import MILLI
from projects.models import Phase, Workload
from projects.queries.costs import array_costs, workload_costs


@dataclass(frozen=True, slots=True)
class Column:
    """Column of the list. `sort` is its sort key, or empty if the column cannot be sorted."""

    title: str
    sort: str = ""
    number: bool = False
    is_default: bool = True
    is_text: bool = False  # the first click on the header sorts in ascending order


COLUMNS: Mapping[str, Column] = {
    "state": Column("State", "state", is_text=True),
    "gpus": Column("GPUs", "gpus", number=True),
    "utilization": Column("GPU utilization"),
    "runtime": Column("Runtime", number=True, is_default=False),
    "status": Column("Status"),
    "priority": Column("Priority", "priority", number=True, is_default=False),
    "submitted": Column("Submitted", "submitted"),
    "department": Column("Department", "department", is_default=False, is_text=True),
    "pool": Column("Node pool", is_default=False),
    "since": Column("State since", "since", is_default=False),
    "started": Column("Started", is_default=False),
    "wait": Column("Wait until start", "wait", number=True, is_default=False),
    "ended": Column("Ended", is_default=False),
    "runs": Column("Runs", "runs", number=True, is_default=False),
    "evictions": Column("Evictions", "evictions", number=True, is_default=False),
    "cost": Column("Cost", number=True, is_default=False),
    "labels": Column("Labels", is_default=False),
}
DEFAULT_COLUMNS = tuple(key for key, column in COLUMNS.items() if column.is_default)
# Default columns of lists with ended workloads. Other lists show the runtime as part of the state.
DEFAULT_COLUMNS_WITH_RUNTIME = tuple(key for key in COLUMNS if key in {*DEFAULT_COLUMNS, "runtime"})


def _utilization_percent(row: Workload) -> float | None:
    busy: int | None = getattr(row, "utilization", None)
    return None if busy is None else busy / 10


def run_seconds(row: Workload) -> int | None:
    """Return the duration of the current or last run in seconds.

    Return None if the workload has never started, or if it is neither running nor ended.
    """
    end = row.ended_at or (timezone.now() if row.phase == Phase.RUNNING else None)
    if end is None or row.started_at is None:
        return None
    return max(0, round((end - row.started_at).total_seconds()))


CellValue = Callable[[Workload], object]
CSV_COLUMNS: Mapping[str, tuple[tuple[str, CellValue], ...]] = {
    "state": (("State", lambda row: row.phase),),
    "runtime": (("Runtime (s)", run_seconds),),
    "status": (("Reason", lambda row: row.reason), ("Status", lambda row: row.message)),
    "gpus": (
        ("Allocated GPUs", lambda row: row.gpu_milli_now / MILLI),
        ("Requested GPUs", lambda row: row.gpu_milli_min / MILLI),
    ),
    "utilization": (("GPU utilization (%)", _utilization_percent),),
    "priority": (("Priority", lambda row: row.priority), ("Preemptible", lambda row: row.preemptible)),
    "submitted": (
        ("Submitted", lambda row: row.submitted_at),
        ("Submitted by", lambda row: row.submitted_by.username if row.submitted_by else None),
    ),
    "department": (("Department", lambda row: row.project.department.name),),
    "pool": (("Node pool", lambda row: row.pool.name if row.pool else ", ".join(row.pools)),),
    "since": (("State since", lambda row: row.since),),
    "started": (("Started", lambda row: row.started_at),),
    "wait": (
        ("Wait until start (s)", lambda row: cast("Any", row).wait_seconds if row.first_started_at else None),
    ),
    "ended": (("Ended", lambda row: row.ended_at),),
    "runs": (("Runs", lambda row: row.run),),
    "evictions": (("Evictions", lambda row: row.preemptions),),
    "cost": ((f"Cost ({settings.BERTH_CURRENCY})", lambda row: cast("Any", row).cost),),
    "labels": (("Labels", lambda row: row.labels),),
}
FIXED_CSV_COLUMNS: tuple[tuple[str, CellValue], ...] = (
    ("Workload", lambda row: row.name),
    ("Project", lambda row: row.project.name),
    ("Kind", lambda row: row.kind),
    ("ID", lambda row: str(row.pk)),
)


def csv_columns(keys: Iterable[str]) -> tuple[tuple[str, CellValue], ...]:
    return (*FIXED_CSV_COLUMNS, *(column for key in keys for column in CSV_COLUMNS[key]))


def chosen_columns(query: QueryDict) -> tuple[str, ...]:
    """Return the requested columns in display order, or an empty list if none of the requested columns is
    valid.
    """
    requested = {word for text in query.getlist("columns") for word in text.split(",")}
    return tuple(key for key in COLUMNS if key in requested)


def default_columns(rows: Iterable[Workload]) -> tuple[str, ...]:
    """Return the default columns. They include the runtime if any workload or array has ended."""
    has_ended = any(row.array.ended_at if row.array else row.ended_at for row in rows)
    return DEFAULT_COLUMNS_WITH_RUNTIME if has_ended else DEFAULT_COLUMNS


def load_runtimes(rows: Sequence[Workload]) -> None:
    """Set `runtime`, in seconds or None, on each row of a workload or array.

    An array's runtime begins with its first task.
    """
    listed = [row.array_id for row in rows if row.array is not None]
    tasks = Workload.objects.filter(array__in=listed).order_by().values_list("array") if listed else None
    starts = dict(tasks.annotate(start=Min("first_started_at"))) if tasks is not None else {}
    for row in rows:
        seconds = run_seconds(row)
        if row.array is not None:
            start, end = starts.get(row.array_id), row.array.ended_at or timezone.now()
            seconds = round((end - start).total_seconds()) if start else None
            cast("Any", row).first_start = start
        cast("Any", row).runtime = seconds


def load_costs(rows: Sequence[Workload], columns: Iterable[str]) -> Sequence[Workload]:
    """Add each workload's cost to its row if the cost column is shown. Return the rows."""
    costs = workload_costs([row.pk for row in rows], timezone.now()) if "cost" in columns else {}
    for row in rows:
        cast("Any", row).cost = costs.get(row.pk)
    return rows


def load_array_costs(rows: Sequence[Workload], columns: Iterable[str]) -> None:
    """Add the total cost of an array's tasks to the array's row if the cost column is shown."""
    arrays = {row.array_id: row for row in rows if row.array_id is not None} if "cost" in columns else {}
    costs = array_costs(list(arrays), timezone.now())
    for array_id, row in arrays.items():
        cast("Any", row).cost = costs.get(array_id)
