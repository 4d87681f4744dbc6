"""Bar of a workload's periods: segments with tooltips, marks, a time axis and a legend."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import Any

from berth.server.web.charts.time_axis import time_labels_with_begin
from berth.server.web.numbers import elapsed
from scheduler.web.workloads.timeline.marks import FAILED, ROW_HEIGHT, PeriodMark, arrange_marks
from scheduler.web.workloads.timeline.periods import Period
from scheduler.web.workloads.timeline.scale import Scale, build_scale

ORDER = ("pending", "reserved", "starting", "running", "stopping", "suspended")
LOST = "lost"
REQUEUED = "queue time reset"
# Minimum width of a segment with a duration label, in percent of the bar, in wide and narrow windows.
WIDE_ROOM, NARROW_ROOM = 9, 22
NARROW = 1  # segments below this width, in percent, are drawn with a minimum width


@dataclass(frozen=True, slots=True)
class Segment:
    """Segment of the bar.

    `x` and `width` are in percent. `key` is a number that the segment shares with the timeline entry that
    begins its period. `text_width` is the width of the part before the lost work.
    """

    period: Period
    x: float
    width: float
    key: int
    is_lost: bool = False  # True for lost work, which is drawn over its run
    is_current: bool = False
    text_width: float = 0

    @property
    def state(self) -> str:
        return LOST if self.is_lost else self.period.state

    @property
    def is_narrow(self) -> bool:
        return self.width < NARROW

    @property
    def title(self) -> str:
        if self.is_lost:
            return "Work lost"
        title = "Restart delay" if self.period.is_delay else self.period.state.capitalize()
        return f"{title}, expected" if self.period.is_expected else title

    @property
    def duration(self) -> str:
        return elapsed(self.period.duration.total_seconds())

    @property
    def room(self) -> str:
        """Return the narrowest window ("narrow" or "wide") in which the duration fits into the segment, or ""
        if it fits in neither.
        """
        if self.is_lost or self.period.is_delay:
            return ""  # text on stripes is hard to read
        return "narrow" if self.text_width >= NARROW_ROOM else "wide" if self.text_width >= WIDE_ROOM else ""


@dataclass(frozen=True, slots=True)
class PeriodBar:
    begin: datetime
    end: datetime
    scale: Scale
    segments: tuple[Segment, ...]
    now: float | None  # position of the current time, or None if the workload has ended
    evictions: tuple[float, ...]  # positions of the evictions
    checkpoint: float | None  # position of the last checkpoint
    edit: float | None  # position of the last edit that reset the queue time
    failure: float | None  # position of the failure, or None if the workload has not failed
    marks: tuple[PeriodMark, ...]  # labels of last checkpoint, edit, last eviction, failure and present
    states: tuple[str, ...]  # states so far, except for restart delays
    expected: str = ""  # state of the dashed (expected) part, or ""
    end_title: str = ""  # title of the event expected at the end of the bar, or ""

    @property
    def has_delay(self) -> bool:
        return any(each.period.is_delay for each in self.segments)

    @property
    def has_lost_work(self) -> bool:
        return any(each.is_lost for each in self.segments)


def build_bar(
    periods: Sequence[Period],
    expected: Sequence[Period],
    evictions: Iterable[datetime],
    lost_work: Iterable[Period],
    checkpoint: datetime | None,
    *,
    is_live: bool,
    has_failed: bool = False,
    requeued: datetime | None = None,
) -> PeriodBar | None:
    """Return the timeline bar, or None if there are fewer than two periods.

    `requeued` is the time at which an edit last reset the workload's queue time.
    """
    shown = [*periods, *expected]
    if len(shown) < 2:
        return None
    begin, end = shown[0].begin, shown[-1].end
    scale = build_scale(at for each in shown for at in (each.begin, each.end))
    visible = [at for at in evictions if begin <= at <= end]
    saved = checkpoint if checkpoint is not None and begin <= checkpoint <= end else None
    now = periods[-1].end if is_live and periods else None
    edited = requeued if requeued is not None and begin <= requeued <= end else None
    failed = end if has_failed else None
    marks = (
        ("last checkpoint", saved), (REQUEUED, edited), ("evicted", max(visible, default=None)),
        (FAILED, failed), ("now", now),
    )  # fmt: skip
    return PeriodBar(
        begin,
        end,
        scale,
        tuple(_build_segments(shown, lost_work, scale, now)),
        None if now is None else scale.position(now),
        tuple(scale.position(at) for at in visible),
        None if saved is None else scale.position(saved),
        None if edited is None else scale.position(edited),
        None if failed is None else scale.position(failed),
        arrange_marks([(text, at) for text, at in marks if at is not None], scale),
        tuple(state for state in ORDER if any(each.state == state and not each.is_delay for each in periods)),
        expected[-1].state if expected else "",
        _end_title(expected[-1]) if expected else "",
    )


def bar_context(bar: PeriodBar, zone: tzinfo) -> dict[str, Any]:
    """Return the template context of the bar, with times in the reader's time zone."""
    return {
        "bar": bar,
        "segments": [(each, _describe(each, bar, zone)) for each in bar.segments],
        "marks": [(mark, _format_time(mark.at, bar, zone)) for mark in bar.marks],
        "marks_height": ROW_HEIGHT * len(bar.marks),
        "labels": time_labels_with_begin(bar.begin, bar.end, zone),
    }


def _build_segments(
    shown: Sequence[Period], lost_work: Iterable[Period], scale: Scale, now: datetime | None
) -> list[Segment]:
    """Return the segments in chronological order. Lost work follows the run that it is part of."""
    losses = list(lost_work)
    segments = []
    for key, period in enumerate(shown):
        is_current = not period.is_expected and period.end == now
        stripes = [
            replace(_build_segment(each, key, scale), is_lost=True)
            for each in losses
            if period.state == each.state and period.begin <= each.begin < period.end
        ]
        whole = _build_segment(period, key, scale)
        text_width = min([whole.x + whole.width, *(each.x for each in stripes)]) - whole.x
        segments += [replace(whole, is_current=is_current, text_width=text_width), *stripes]
    return segments


def _build_segment(period: Period, key: int, scale: Scale) -> Segment:
    x = scale.position(period.begin)
    return Segment(period, x, round(scale.position(period.end) - x, 2), key)


def _describe(segment: Segment, bar: PeriodBar, zone: tzinfo) -> str:
    """Return the title, the times and the duration of a segment, one per line."""
    period = segment.period
    has_seconds = not period.is_expected
    begin, end = (_format_time(at, bar, zone, seconds=has_seconds) for at in (period.begin, period.end))
    if period.is_expected:
        begin = "now" if segment.x == bar.now else begin
        end = end if period.is_delay or period.state == "running" else f"about {end}"
    elif segment.is_current:
        end = "now"
    so_far = " so far" if segment.is_current else ""
    return f"{segment.title}\n{begin} to {end}\n{segment.duration}{so_far}"


def _format_time(at: datetime, bar: PeriodBar, zone: tzinfo, *, seconds: bool = False) -> str:
    """Return the time of day, with the date if the bar is longer than a day."""
    day = "" if bar.end - bar.begin <= timedelta(days=1) else "%-d %b "
    return f"{at.astimezone(zone):{day}%H:%M{':%S' if seconds else ''}}"


def _end_title(period: Period) -> str:
    if period.state == "running":
        return "Reaches max runtime"
    return "Restart delay ends" if period.is_delay else "Expected start about"
