"""Thread that reads new metrics from pod logs."""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from django.db import InterfaceError, OperationalError

from berth.core.clock import Clock
from berth.db.loops.crash_points import assert_no_transaction
from berth.db.loops.lease import HeldLease, LeadershipLost, fenced_transaction
from pools.models import NodePool
from pools.runtimes.base import LogChunk, Runtime, RuntimeFailure
from projects.engine.metrics import parse_reports
from projects.models import MetricsReader, Pod
from projects.models.workloads import LIVE_POD_STATES
from projects.services.arrays.stop_rules import arrays_with_rules, cancel_tasks_to_stop, decide_tasks_to_stop
from scheduler.loop.context import always_leads
from scheduler.models import Allocation
from scheduler.reports.leased_thread import LeasedThread
from scheduler.reports.metrics.storage import LogReading, remove_secret_metric_names, write_metrics

log = logging.getLogger(__name__)

# maximum number of bytes read from one log at a time; the start of a larger backlog is skipped
READ_BYTES = 2**20
ROUND_BYTES = 16 * 2**20  # maximum number of bytes per round, over all logs
# maximum number of values per round; values take longer to process than other output
ROUND_SAMPLES = 300_000
PODS_PER_TRANSACTION = 50
SAMPLES_PER_TRANSACTION = 50_000
STOP_RULES_INTERVAL = timedelta(seconds=10)  # minimum pause between two applications of stop rules
PAUSE_MAX = timedelta(seconds=60)  # maximum pause between two readings of a log without reports
OVERLAP = timedelta(minutes=1)
LOOK_BACK = timedelta(days=1)  # a new leader reads the logs of pods that ended in this period


class LoggedPod(NamedTuple):
    pk: uuid.UUID
    workload_id: uuid.UUID
    pool_id: int


@dataclass(slots=True)
class LogReadSchedule:
    """Schedule for reading one log. The pause doubles while the log contains no metrics or cannot be read."""

    due_at: datetime
    pause: timedelta
    offset: int


class MetricsCollector(LeasedThread):
    """Thread that stores the metrics of all pods."""

    lease_name: ClassVar[str] = "metrics"
    subject: ClassVar[str] = "the collection of metrics"

    def __init__(
        self, clock: Clock, runtime_for: Callable[[NodePool], Runtime], seconds: float,
        leads: Callable[[], bool] = always_leads,
    ) -> None:  # fmt: skip
        super().__init__(clock, runtime_for, seconds, leads)
        self._schedules: dict[uuid.UUID, LogReadSchedule] = {}
        self._unread: dict[uuid.UUID, LoggedPod] = {}  # ended pods whose logs have not been read to the end
        self._ended_since: datetime | None = None
        self._reported: set[uuid.UUID] | None = None  # tasks with new reports, or None for all tasks
        self._rules_at: datetime | None = None
        self._next_index: dict[uuid.UUID, int] = {}  # index of the next task to compare in each array
        self._epoch: int | None = None

    def run_job(self, held: HeldLease) -> None:
        """Read the logs that are due, and store their metrics."""
        now = self._clock.now()
        self._reapply_rules_after_lease_change(held)
        running = {pod.pk: pod for pod in _running_pods()}
        self._add_unread_ended_pods(now)
        logged = running | self._unread
        self._schedules = {pk: schedule for pk, schedule in self._schedules.items() if pk in logged}
        pods = [
            pod
            for pk, pod in logged.items()
            if pk not in self._schedules or self._schedules[pk].due_at <= now
        ]
        pods.sort(key=lambda pod: self._schedules[pod.pk].due_at if pod.pk in self._schedules else now)
        stored = MetricsReader.objects.in_bulk([pod.pk for pod in pods])
        pools = NodePool.objects.in_bulk({pod.pool_id for pod in pods})
        assert_no_transaction()
        readings: list[LogReading] = []
        for reading in self._read_logs(pods, stored, pools, now):
            readings.append(reading)
            values = sum(len(each.samples) for each in readings)
            if len(readings) == PODS_PER_TRANSACTION or values >= SAMPLES_PER_TRANSACTION:
                self._write_readings(readings, now, held)
                readings = []
        if readings:
            self._write_readings(readings, now, held)
        self._stop_tasks(now, held)

    def _stop_tasks(self, now: datetime, held: HeldLease) -> None:
        """Apply the stop rules of arrays whose tasks have reported metrics since the last round."""
        if self._rules_at is not None and now - self._rules_at < STOP_RULES_INTERVAL:
            return
        self._rules_at = now
        if self._reported is not None and not self._reported and not self._next_index:
            return
        unfinished: dict[uuid.UUID, int] = {}
        for array in arrays_with_rules(self._reported, self._next_index):
            try:
                decision = decide_tasks_to_stop(array, self._next_index.get(array.pk, 0))
                if decision.stops:
                    with fenced_transaction(held):
                        cancel_tasks_to_stop(array, decision, now)
                if decision.next_index:
                    unfinished[array.pk] = decision.next_index
            except (LeadershipLost, OperationalError, InterfaceError):
                raise
            except Exception:
                log.exception("the stop rule of the array %s could not be applied", array.pk)
        self._reported, self._next_index = set(), unfinished

    def _reapply_rules_after_lease_change(self, held: HeldLease) -> None:
        """If another process may have held the lease, apply all stop rules in the next round."""
        if self._epoch is not None and held.epoch != self._epoch + 1:
            self._reported = None
        self._epoch = held.epoch

    def _add_unread_ended_pods(self, now: datetime) -> None:
        since = now - LOOK_BACK if self._ended_since is None else self._ended_since - OVERLAP
        ended = {pod.pk: pod for pod in _ended_pods(since)}
        complete = MetricsReader.objects.filter(pod__in=list(ended), is_complete=True)
        for pk in complete.values_list("pod_id", flat=True):
            del ended[pk]
        for pk in ended.keys() - self._unread.keys() & self._schedules.keys():
            self._schedules[pk].due_at = now
        self._unread |= ended
        self._ended_since = now

    def _read_logs(
        self, pods: Iterable[LoggedPod], stored: Mapping[uuid.UUID, MetricsReader],
        pools: Mapping[int, NodePool], now: datetime,
    ) -> Iterator[LogReading]:  # fmt: skip
        """Read the pods' new output, up to ROUND_BYTES bytes or ROUND_SAMPLES samples."""
        read_bytes = read_samples = 0
        for pod in pods:
            if read_bytes >= ROUND_BYTES or read_samples >= ROUND_SAMPLES:
                return
            has_ended = pod.pk in self._unread
            offset = stored[pod.pk].offset if pod.pk in stored else 0
            if pod.pk in self._schedules:
                offset = max(offset, self._schedules[pod.pk].offset)
            try:
                chunk = _read_new_output(self._runtime_of(pools[pod.pool_id]), str(pod.pk), offset)
            except (RuntimeFailure, LookupError, ValueError, OSError) as error:
                log.info("the log of the pod %s cannot be read now: %s", pod.pk, error)
                self._schedule_next_read(pod.pk, offset, now, has_reports=False)
                continue
            read_bytes += len(chunk.data)
            text = chunk.data if has_ended else _drop_incomplete_line(chunk.data)
            samples = list(parse_reports(text))
            read_samples += len(samples)
            end = chunk.offset + len(text)
            must_store = bool(samples) or has_ended
            # If storing fails, the next round reads from the stored position again.
            next_offset = offset if must_store else end
            self._schedule_next_read(pod.pk, next_offset, now, has_reports=bool(samples) or pod.pk in stored)
            if must_store:
                yield LogReading(pod.pk, pod.workload_id, samples, end, has_ended)

    def _schedule_next_read(self, pk: uuid.UUID, offset: int, now: datetime, *, has_reports: bool) -> None:
        interval = timedelta(seconds=self._seconds)
        schedule = self._schedules.get(pk)
        pause = interval if has_reports or schedule is None else min(schedule.pause * 2, PAUSE_MAX)
        self._schedules[pk] = LogReadSchedule(now + pause, pause, offset)

    def _write_readings(self, readings: list[LogReading], now: datetime, held: HeldLease) -> None:
        write_metrics(remove_secret_metric_names(readings), now, held)
        for reading in readings:
            if reading.samples and self._reported is not None:
                self._reported.add(reading.workload_id)
            if reading.is_complete:
                self._unread.pop(reading.pod_id, None)


def _running_pods() -> Iterator[LoggedPod]:
    rows = Pod.objects.filter(state__in=LIVE_POD_STATES, started_at__isnull=False).order_by()
    return map(LoggedPod._make, rows.values_list("pk", "workload_id", "node__pool_id"))


def _ended_pods(since: datetime) -> Iterator[LoggedPod]:
    rows = Allocation.objects.filter(released_at__gte=since, pod__started_at__isnull=False)
    rows = rows.exclude(pod__state__in=LIVE_POD_STATES)
    return map(LoggedPod._make, rows.values_list("pod_id", "pod__workload_id", "node__pool_id"))


def _read_new_output(runtime: Runtime, pod_id: str, offset: int) -> LogChunk:
    """Read a log from `offset`, but no more than its last READ_BYTES bytes."""
    chunk = runtime.read_log(pod_id, offset, READ_BYTES)
    if chunk.size - chunk.offset > READ_BYTES:
        return runtime.read_log(pod_id, chunk.size - READ_BYTES, READ_BYTES)
    return chunk


def _drop_incomplete_line(data: bytes) -> bytes:
    """Remove an incomplete last line, unless that line is very long."""
    return data if len(data) >= READ_BYTES else data[: data.rfind(b"\n") + 1]
