"""Periods of a workload's life: past, current and expected states."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from berth.core.wording.words import format_count
from berth.server.web.numbers import elapsed
from projects.models import Event, Phase, Workload
from projects.models.workloads import ENDED_PHASES

STATES = {
    "submitted": "pending",
    Phase.PENDING: "pending",
    Phase.RESERVED: "reserved",
    Phase.STARTING: "starting",
    Phase.RUNNING: "running",
    Phase.STOPPING: "stopping",
    Phase.SUSPENDED: "suspended",
}


@dataclass(frozen=True, slots=True)
class Period:
    """Period in one state. A restart delay is a separate period, and its remaining part is an expected
    period.
    """

    state: str
    begin: datetime
    end: datetime
    is_expected: bool = False
    is_delay: bool = False

    @property
    def duration(self) -> timedelta:
        return self.end - self.begin


def find_periods(rows: Iterable[Event], workload: Workload, now: datetime) -> list[Period]:
    """Return the workload's past and current states, oldest first. The events must be in ascending order."""
    periods: list[Period] = []
    current: tuple[str, datetime] | None = None
    for row in rows:
        if row.kind not in STATES and row.kind not in ENDED_PHASES:
            continue
        state = STATES.get(row.kind)
        if current is not None and current[0] == state:
            continue
        if current is not None:
            periods.append(Period(current[0], current[1], row.at))
        current = None if state is None else (state, row.at)
    state = STATES.get(workload.phase)
    if state is not None and (current is None or current[0] != state):
        since = max([workload.since, *([current[1]] if current else []), *(each.end for each in periods)])
        if current is not None:
            periods.append(Period(current[0], current[1], since))
        current = (state, since)
    if current is not None and state is not None:
        periods.append(Period(current[0], current[1], max(now, current[1])))
    return _split_delay([period for period in periods if period.end > period.begin], workload)


def _split_delay(periods: list[Period], workload: Workload) -> list[Period]:
    """If the workload is pending after an eviction or failure, split off its restart delay as a separate
    period.
    """
    until = workload.backoff_until
    if until is None or workload.phase != Phase.PENDING or not periods or periods[-1].begin >= until:
        return periods
    *earlier, last = periods
    delay = replace(last, end=min(until, last.end), is_delay=True)
    return [*earlier, delay, *([replace(last, begin=until)] if until < last.end else [])]


def expected_periods(workload: Workload, start: datetime | None, now: datetime) -> list[Period]:
    """Return the workload's expected periods.

    A pending workload has the rest of its restart delay and the time until its start. A running workload has
    the time until the end of its maximum runtime.
    """
    if workload.phase in (Phase.PENDING, Phase.RESERVED):
        state, until = STATES[workload.phase], workload.backoff_until
        ends = [*([(until, True)] if until and workload.phase == Phase.PENDING else []), (start, False)]
        periods, begin = list[Period](), now
        for end, is_delay in ends:
            if end is not None and end > begin:
                periods.append(Period(state, begin, end, is_expected=True, is_delay=is_delay))
                begin = end
        return periods
    if workload.phase == Phase.RUNNING and workload.started_at is not None and workload.max_runtime:
        end = workload.started_at + timedelta(seconds=workload.max_runtime)
        return [Period("running", now, end, is_expected=True)] if end > now else []
    return []


def summarize(workload: Workload, periods: Iterable[Period]) -> str:
    """Return the number of runs and evictions up to now, and how long the workload ran and was pending."""
    totals, delay = dict.fromkeys(("running", "pending"), 0.0), 0.0
    for period in periods:
        if period.state in totals:
            totals[period.state] += period.duration.total_seconds()
        if period.is_delay:
            delay += period.duration.total_seconds()
    parts = [format_count(workload.run, "run"), format_count(workload.preemptions, "eviction")]
    parts += [f"{elapsed(total)} {state}" for state, total in totals.items() if total]
    if delay:
        parts.append(f"including {elapsed(delay)} of restart delay")
    return ", ".join(part for part in parts if not part.startswith("0 "))


def find_lost_work(periods: Sequence[Period], evictions: Iterable[tuple[datetime, float]]) -> list[Period]:
    """Return the part of each run that was lost to an eviction, as periods.

    `evictions` contains (time, seconds of work lost) pairs.
    """
    runs = [period for period in periods if period.state == "running"]
    return [
        Period("running", max(run.begin, at - timedelta(seconds=seconds)), run.end)
        for at, seconds in evictions
        for run in runs
        if seconds and run.begin < at <= run.end
    ]


def find_work_lost_in_failure(periods: Sequence[Period], workload: Workload) -> list[Period]:
    """Return the work lost in a failure as a list of at most one period, starting at the last checkpoint."""
    last = next((period for period in reversed(periods) if period.state != "stopping"), None)
    has_failed = workload.phase == Phase.FAILED and workload.gpu_milli_min > 0
    if not has_failed or last is None or last.state != "running":
        return []
    begin = max(last.begin, workload.last_checkpoint_at or last.begin)
    return [Period("running", begin, last.end)] if begin < last.end else []
