"""Periods of a workload's life on a bar: its states so far, its evictions, and what is expected."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.server.web.charts.bars import WIDTH
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
ORDER = ("pending", "reserved", "starting", "running", "stopping", "suspended")
MIN_WIDTH = 4  # of a period, so that short ones remain visible, in units of the bar


@dataclass(frozen=True, slots=True)
class Period:
    state: str
    begin: datetime
    end: datetime
    is_expected: bool = False

    @property
    def length(self) -> timedelta:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class PeriodPart:
    """Part of the bar. `key` is the number of the period, which the entry that begins it shares."""

    x: int
    width: int
    state: str
    label: str
    key: int
    is_expected: bool


@dataclass(frozen=True, slots=True)
class PeriodBar:
    begin: datetime
    end: datetime
    parts: tuple[PeriodPart, ...]
    now: int | None  # position of the present, or None if the workload has ended
    evictions: tuple[int, ...]  # positions
    totals: tuple[tuple[str, timedelta], ...]  # time spent in each state so far
    expected: str = ""  # state of the dashed part, or ""
    label: str = field(default="", kw_only=True)


def find_periods(rows: Iterable[Event], workload: Workload, now: datetime) -> list[Period]:
    """Return the states so far, oldest first, from the workload's events in ascending order.

    The current state follows from the workload, because its event may be missing. Events that do not change
    the state are skipped.
    """
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
    return [period for period in periods if period.end > period.begin]


def expected_period(workload: Workload, start: datetime | None, now: datetime) -> Period | None:
    """Return the rest of the current state until the expected start or the end of the maximum runtime."""
    if workload.phase in (Phase.PENDING, Phase.RESERVED) and start is not None and start > now:
        return Period(STATES[workload.phase], now, start, is_expected=True)
    if workload.phase == Phase.RUNNING and workload.started_at is not None and workload.max_runtime:
        end = workload.started_at + timedelta(seconds=workload.max_runtime)
        return Period("running", now, end, is_expected=True) if end > now else None
    return None


def period_bar(
    periods: Sequence[Period], expected: Period | None, evictions: Iterable[datetime], *, is_live: bool
) -> PeriodBar | None:
    """Return the bar, or None if there are fewer than two periods to show."""
    shown = [*periods, *([expected] if expected else [])]
    if len(shown) < 2:
        return None
    begin, end = shown[0].begin, shown[-1].end
    totals = {
        state: sum((each.length for each in periods if each.state == state), timedelta()) for state in ORDER
    }
    spent = tuple((state, length) for state, length in totals.items() if length)
    return PeriodBar(
        begin,
        end,
        tuple(_part(each, begin, end, key) for key, each in enumerate(shown)),
        _position(periods[-1].end, begin, end) if is_live and periods else None,
        tuple(_position(at, begin, end) for at in evictions if begin <= at <= end),
        spent,
        expected.state if expected else "",
        label=", ".join(_describe(each) for each in shown),
    )


def _part(period: Period, begin: datetime, end: datetime, key: int) -> PeriodPart:
    x = _position(period.begin, begin, end)
    width = max(MIN_WIDTH, _position(period.end, begin, end) - x)
    return PeriodPart(x, width, period.state, _describe(period), key, period.is_expected)


def _describe(period: Period) -> str:
    rest = "another " if period.is_expected else ""
    return f"{period.state} for {rest}{elapsed(period.length.total_seconds())}"


def _position(at: datetime, begin: datetime, end: datetime) -> int:
    return round(WIDTH * ((at - begin) / (end - begin)))
