"""Merge reported metrics into their rows."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from berth.core.masking import Masker
from berth.db.loops.crash_points import crash_point
from berth.db.loops.lease import HeldLease, fenced_transaction
from projects.engine.metrics import METRICS_MAX, Sample, Series
from projects.models import Metric, MetricsReader, Pod
from projects.queries.reported_metrics import to_series
from projects.services.secrets import workload_maskers

SUMMARY_FIELDS = [
    "last_step", "last_value", "min_step", "min_value", "max_step", "max_value", "not_finite",
    "not_finite_step", "reported_at",
]  # fmt: skip
READER_FIELDS = ["offset", "is_complete"]
SeriesByKey = dict[tuple[uuid.UUID, str], Series]


@dataclass(frozen=True, slots=True)
class LogReading:
    """New metrics in a pod's log, and the log position after them."""

    pod_id: uuid.UUID
    workload_id: uuid.UUID
    samples: Sequence[Sample]
    offset: int
    is_complete: bool


def write_metrics(readings: Sequence[LogReading], now: datetime, lease: HeldLease) -> None:
    """Store metrics and log positions in one transaction, so that each metric is stored once."""
    with fenced_transaction(lease, waits_for_disk=False):
        existing = set(
            Pod.objects.filter(pk__in=[reading.pod_id for reading in readings]).values_list("pk", flat=True)
        )
        live = [reading for reading in readings if reading.pod_id in existing]
        _write_series(_add_samples_to_series(live), now)
        crash_point("metrics.stored")
        MetricsReader.objects.bulk_create(
            [
                MetricsReader(pod_id=each.pod_id, offset=each.offset, is_complete=each.is_complete)
                for each in live
            ],
            update_conflicts=True, unique_fields=["pod"], update_fields=READER_FIELDS,
        )  # fmt: skip


def remove_secret_metric_names(readings: Sequence[LogReading]) -> list[LogReading]:
    """Return the readings, omitting metrics whose names contain one of the workload's secrets."""
    maskers = workload_maskers({reading.workload_id for reading in readings if reading.samples})
    return [
        replace(reading, samples=_remove_leaked_secrets(reading.samples, maskers.get(reading.workload_id)))
        for reading in readings
    ]


def _remove_leaked_secrets(samples: Sequence[Sample], masker: Masker | None) -> Sequence[Sample]:
    return samples if masker is None else [each for each in samples if not _is_secret(each.name, masker)]


def _is_secret(name: str, masker: Masker) -> bool:
    return masker.mask(name.encode()) != name.encode()


def _add_samples_to_series(readings: Sequence[LogReading]) -> SeriesByKey:
    """Return the changed series. A workload's metrics in excess of METRICS_MAX are ignored."""
    samples: dict[uuid.UUID, list[Sample]] = defaultdict(list)
    for reading in readings:
        samples[reading.workload_id] += reading.samples
    stored: dict[uuid.UUID, dict[str, Series]] = defaultdict(dict)
    for row in Metric.objects.filter(workload__in=[pk for pk, new in samples.items() if new]):
        stored[row.workload_id][row.name] = to_series(row)
    changed: SeriesByKey = {}
    for workload_id, reported in samples.items():
        series_by_name = stored[workload_id]
        for name, step, value in reported:
            if name not in series_by_name and len(series_by_name) >= METRICS_MAX:
                continue
            series = changed[workload_id, name] = series_by_name.setdefault(name, Series())
            series.add(step, value)
    return changed


def _write_series(changed: Mapping[tuple[uuid.UUID, str], Series], now: datetime) -> None:
    rows = [(series.has_new_points, _to_row(key, series, now)) for key, series in sorted(changed.items())]
    for has_new_points in (True, False):
        Metric.objects.bulk_create(
            [row for is_new, row in rows if is_new == has_new_points],
            update_conflicts=True, unique_fields=["workload", "name"],
            update_fields=[*SUMMARY_FIELDS, *(["steps", "values", "stride"] if has_new_points else [])],
        )  # fmt: skip


def _to_row(key: tuple[uuid.UUID, str], series: Series, now: datetime) -> Metric:
    workload_id, name = key
    last, lowest, highest = (point or (None, None) for point in (series.last, series.lowest, series.highest))
    return Metric(
        workload_id=workload_id, name=name, stride=series.stride,
        steps=[point.step for point in series.points], values=[point.value for point in series.points],
        last_step=last[0], last_value=last[1], min_step=lowest[0], min_value=lowest[1],
        max_step=highest[0], max_value=highest[1], not_finite=series.not_finite,
        not_finite_step=series.not_finite_step, reported_at=now,
    )  # fmt: skip
