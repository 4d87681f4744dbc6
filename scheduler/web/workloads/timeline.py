"""Timeline of a workload: events, evictions and pending reasons."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest

from django.utils import timezone

from berth.core.wording.words import format_count
from berth.server.web.charts.bars import Bar, stacked_bar
from projects.actor import Actor
from projects.models import Event, Phase, Workload
from projects.selectors import events
from scheduler.reports.evictions.rendering import KIND_TITLES, RenderedEviction
from scheduler.reports.explanations.pending_history import (
    PendingReason,
    pending_history,
    reasons_in_period,
    total_by_reason,
)
from scheduler.reports.explanations.workload import expected_start
from scheduler.reports.queues.brief_reasons import BACKOFF_END, CAN_START
from scheduler.web.workloads.edit_labels import with_field_labels

MAX_EVENTS = 100
MAX_LISTED_REASONS = 4  # maximum number of listed reasons; longer pending periods show one total per reason
# Maximum time between an eviction and its event in the same transaction.
SAME_TRANSACTION = timedelta(seconds=30)
PENDING_PHASES = (Phase.PENDING, Phase.RESERVED)
TITLES_BY_REASON = {
    "Preempted": "Preempted",
    "Reclaimed": "Reclaimed",
    "Consolidated": "Moved",
    "Shrunk": "Scaled down",
    "StaleGang": "Stopped below minimum",
    "Drained": "Drained",
    "StartRejected": "Rejected by the cluster",
    "Restarting": "Restarting after a failure",
}
PHASE_TITLES = {
    "submitted": "Submitted",
    Phase.PENDING: "Pending",
    Phase.RESERVED: "Reserved",
    Phase.STARTING: "Starting",
    Phase.RUNNING: "Running",
    Phase.STOPPING: "Stopping",
}
EVICTED_ANOTHER, STILL_PENDING = "Evicted another workload", "Still pending"
FUTURE = "future"  # tone of events that are expected
WAITING, RUNNING = KINDS = ("requested", "used")  # parts of the bar of periods
STILL_RUNNING = (EVICTED_ANOTHER, "Scaled down", "Pod warning", "Preemption signal")
TONES = {"running": "good", "completed": "good", "failed": "bad", "stopping": "warn", "lost": "bad",
         "engine_failed": "bad", "pod_warning": "warn", "unschedulable": "bad"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PendingReasons:
    """Reasons of one pending period, in sequence or, if there are many, as a total per reason."""

    summary: tuple[tuple[str, timedelta], ...]
    parts: tuple[tuple[str, datetime, timedelta], ...]

    @property
    def is_summarized(self) -> bool:
        return len(self.parts) > MAX_LISTED_REASONS


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Timeline entry.

    `lasted` and `lasted_verb` ("ran for") describe the period that ended with the entry.
    """

    at: datetime
    title: str
    message: str
    tone: str
    lasted: timedelta | None = None
    lasted_verb: str = ""
    evictions: tuple[RenderedEviction, ...] = ()
    reasons: PendingReasons | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline entries, latest first. `more` is True if there are older events.

    `periods` is a bar of the time spent pending and running so far, with the total of each.
    """

    entries: tuple[TimelineEntry, ...]
    more: bool
    periods: Bar | None = None
    pending: timedelta = timedelta()
    running: timedelta = timedelta()


def timeline(
    actor: Actor,
    workload: Workload,
    evictions: Sequence[RenderedEviction],
    evicted_others: Sequence[RenderedEviction],
    *,
    shows_still_pending: bool = True,
) -> Timeline:
    """Return the workload's events, its own evictions and the evictions it caused as a timeline.

    With `shows_still_pending`, the last entry of a pending workload states its current reason, and the last
    checkpoint and expected events are included.
    """
    rows = list(events(actor).filter(workload_id=workload.pk)[: MAX_EVENTS + 1])
    shown = rows[:MAX_EVENTS]
    unmatched = list(evictions)
    entries = [
        _build_entry(row, workload, _take_matching_evictions(row, unmatched)) for row in reversed(shown)
    ]
    # Omit evictions before the first event only if earlier events are also omitted.
    since = shown[-1].at if len(rows) > MAX_EVENTS else None
    entries += [
        _eviction_entry(eviction) for eviction in unmatched if since is None or eviction.row.at >= since
    ]
    entries += [
        TimelineEntry(eviction.row.at, EVICTED_ANOTHER, f"{eviction.summary}.", "", evictions=(eviction,))
        for eviction in evicted_others
        if since is None or eviction.row.at >= since
    ]
    entries.sort(key=lambda entry: entry.at)
    history, now = pending_history(workload), timezone.now()
    complete = [_with_reasons(entry, history, now) for entry in _with_durations(entries)]
    evaluated_at = workload.explained_at if workload.reason and workload.phase in PENDING_PHASES else None
    if shows_still_pending and evaluated_at is not None:
        message = BACKOFF_END.sub(CAN_START, workload.message)
        last = TimelineEntry(evaluated_at, STILL_PENDING, message, "warn")
        complete.append(
            replace(
                last,
                reasons=_summarize_reasons(reasons_in_period(history, workload.since, None), evaluated_at),
            )
        )
    if not shows_still_pending:
        return Timeline(tuple(reversed(_without_repetitions(complete))), len(rows) > MAX_EVENTS)
    spans = _periods(complete, workload, now)
    complete += _checkpoint_entries(workload)
    complete.sort(key=lambda entry: entry.at)
    complete += _expected_entries(workload, now)
    return Timeline(
        tuple(reversed(_without_repetitions(complete))),
        len(rows) > MAX_EVENTS,
        _period_bar(spans),
        *(sum((end - begin for kind, begin, end in spans if kind == each), timedelta()) for each in KINDS),
    )


def _periods(
    entries: Iterable[TimelineEntry], workload: Workload, now: datetime
) -> list[tuple[str, datetime, datetime]]:
    """Return the pending and running periods, oldest first, including the current one."""
    spans = [
        (RUNNING if entry.lasted_verb == "ran for" else WAITING, entry.at - entry.lasted, entry.at)
        for entry in entries
        if entry.lasted is not None
    ]
    current = WAITING if workload.phase in PENDING_PHASES else RUNNING
    if workload.phase in (*PENDING_PHASES, Phase.RUNNING) and workload.since <= now:
        begin = workload.since if workload.phase == Phase.RUNNING else workload.pending_since
        spans.append((current, max([begin, *(end for _, _, end in spans[-1:])]), now))
    return spans


def _period_bar(spans: Sequence[tuple[str, datetime, datetime]]) -> Bar | None:
    """Return a bar of the periods and the gaps between them, or None if there are fewer than two periods."""
    if len(spans) < 2:
        return None
    amounts, at = [], spans[0][1]
    for kind, begin, end in spans:
        amounts += [(_seconds(begin - at), "track"), (_seconds(end - begin), kind)]
        at = end
    label = f"{format_count(len(spans), 'period')} of pending and running time"
    return stacked_bar(amounts, sum(amount for amount, _ in amounts), label)


def _seconds(length: timedelta) -> int:
    return max(0, round(length.total_seconds()))


def _checkpoint_entries(workload: Workload) -> list[TimelineEntry]:
    saved = workload.last_checkpoint_at
    if saved is None:
        return []
    message = "" if workload.ended_at else "The next run resumes from this checkpoint."
    return [TimelineEntry(saved, "Last checkpoint", message, "")]


def _expected_entries(workload: Workload, now: datetime) -> list[TimelineEntry]:
    """Return the future events that are known: end of the restart delay, start, and end of the runtime."""
    expected = []
    if workload.phase == Phase.PENDING and workload.backoff_until is not None:
        expected.append((workload.backoff_until, "Restart delay ends"))
    start = expected_start(workload, now)[0] if workload.phase in PENDING_PHASES else None
    if start is not None:
        expected.append((start, "Expected start"))
    if workload.phase == Phase.RUNNING and workload.started_at is not None and workload.max_runtime:
        end = workload.started_at + timedelta(seconds=workload.max_runtime)
        expected.append((end, "Reaches max runtime"))
    return [TimelineEntry(at, title, "", FUTURE) for at, title in sorted(expected) if at > now]


def _build_entry(row: Event, workload: Workload, evictions: tuple[RenderedEviction, ...]) -> TimelineEntry:
    reason = str(row.data.get("reason", ""))
    eviction = TITLES_BY_REASON.get(reason) if row.kind == Phase.STOPPING else _partial_eviction(row.kind)
    if eviction is None and evictions:
        eviction = KIND_TITLES.get(evictions[0].row.kind, "Evicted")
    title = eviction or PHASE_TITLES.get(row.kind) or row.kind.replace("_", " ").capitalize()
    tone = "warn" if eviction else TONES.get(row.kind, "")
    message = f"{row.message.removesuffix('.')}." if eviction and row.message else row.message
    if row.kind == "edited":
        message = with_field_labels(message, row.data.get("paths", ()), workload.spec)
    return TimelineEntry(row.at, title, message, tone, evictions=evictions)


def _partial_eviction(kind: str) -> str | None:
    """Return the title of an event at which a gang lost replicas but kept running, or None for other
    events.
    """
    return next((title for reason, title in TITLES_BY_REASON.items() if reason.lower() == kind), None)


def _take_matching_evictions(row: Event, unmatched: list[RenderedEviction]) -> tuple[RenderedEviction, ...]:
    """Return the evictions that belong to the event, and remove them from `unmatched`."""
    if row.kind != Phase.STOPPING and _partial_eviction(row.kind) is None:
        return ()
    matching = tuple(eviction for eviction in unmatched if abs(eviction.row.at - row.at) <= SAME_TRANSACTION)
    for eviction in matching:
        unmatched.remove(eviction)
    return matching


def _eviction_entry(eviction: RenderedEviction) -> TimelineEntry:
    title = KIND_TITLES.get(eviction.row.kind, "Evicted")
    return TimelineEntry(eviction.row.at, title, f"{eviction.summary}.", "warn", evictions=(eviction,))


def _with_durations(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    """Add the duration of the preceding pending or running period to each state change."""
    complete: list[TimelineEntry] = []
    since: TimelineEntry | None = None
    for entry in entries:
        lasted, verb = None, ""
        if since is not None and entry.title != since.title:
            if since.title in ("Submitted", "Pending") and entry.title in ("Starting", "Running"):
                lasted, verb = entry.at - since.at, "pending for"
            elif since.title == "Running" and entry.title not in STILL_RUNNING:
                lasted, verb = entry.at - since.at, "ran for"
        complete.append(replace(entry, lasted=lasted, lasted_verb=verb))
        if entry.title in ("Submitted", "Pending", "Running") or verb:
            since = entry
    return complete


def _without_repetitions(entries: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Remove the message of each entry that is followed by an entry with the same message."""
    return [
        replace(entry, message="") if following and entry.message == following.message else entry
        for entry, following in zip_longest(entries, entries[1:])
    ]


def _with_reasons(entry: TimelineEntry, history: Sequence[PendingReason], now: datetime) -> TimelineEntry:
    if entry.lasted_verb != "pending for" or entry.lasted is None:
        return entry
    parts = reasons_in_period(history, entry.at - entry.lasted, entry.at)
    return replace(entry, reasons=_summarize_reasons(parts, now))


def _summarize_reasons(parts: Sequence[PendingReason], now: datetime) -> PendingReasons | None:
    if not parts:
        return None
    periods = tuple((part.reason, part.since, part.duration(now)) for part in parts)
    many = len(parts) > MAX_LISTED_REASONS
    summary = total_by_reason(parts, now) if many else [(reason, lasted) for reason, _, lasted in periods]
    return PendingReasons(tuple(summary), periods)
