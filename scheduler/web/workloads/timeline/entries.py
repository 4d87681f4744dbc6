"""Timeline of a workload: events, evictions and pending reasons."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest

from django.utils import timezone

from berth.core.values.amounts import MILLI
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
from scheduler.reports.explanations.workload import expected_start, expected_start_after
from scheduler.reports.queues.pending_reason import pending_reason
from scheduler.reports.visibility import viewer_for
from scheduler.web.workloads.details import link_awaited_ends
from scheduler.web.workloads.pending.edit_labels import replace_paths_with_labels
from scheduler.web.workloads.timeline.bar import PeriodBar, build_bar
from scheduler.web.workloads.timeline.periods import (
    STATES,
    Period,
    expected_periods,
    find_lost_work,
    find_periods,
    find_work_lost_in_failure,
    summarize,
)

MAX_EVENTS = 100
MAX_LISTED_REASONS = (
    4  # maximum number of listed reasons; pending periods with more show one total per reason
)
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
EVICTED_ANOTHER, STILL_PENDING = "Evicted another workload", "Now pending"
FUTURE = "future"  # tone of events that are expected
EVICTION = "eviction"  # state of entries that are marked on the bar
STOPS = ("Stopping", *(title for title in TITLES_BY_REASON.values() if title != "Scaled down"))
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

    `lasted` and `lasted_verb` ("ran for") describe the period that ended with the entry. `so_far` and
    `current_reason` describe the current pending period if it began with the entry.
    """

    at: datetime
    title: str
    message: str
    tone: str
    lasted: timedelta | None = None
    lasted_verb: str = ""
    so_far: timedelta | None = None
    current_reason: str = ""
    evictions: tuple[RenderedEviction, ...] = ()
    eviction: RenderedEviction | None = None  # eviction that is shown in place of a message
    reasons: PendingReasons | None = None
    is_estimate: bool = False
    links: tuple[tuple[str, str], ...] = ()  # texts after the title, each with its URL or ""
    state: str = ""  # state that begins at this entry, or "eviction" or "checkpoint"
    period: int | None = None  # number of the entry's period on the bar


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline entries, latest first.

    `more` is True if there are older events. `periods` is a bar of the workload's past and expected states.
    `summary` states how often and how long the workload ran and was pending.
    """

    entries: tuple[TimelineEntry, ...]
    more: bool
    periods: PeriodBar | None = None
    summary: str = ""


def timeline(
    actor: Actor,
    workload: Workload,
    evictions: Sequence[RenderedEviction],
    evicted_others: Sequence[RenderedEviction],
    *,
    shows_still_pending: bool = True,
) -> Timeline:
    """Return a timeline of the workload's events, its own evictions and the evictions that it caused.

    With `shows_still_pending`, the timeline also contains the current reason, the last checkpoint and
    expected events.
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
    complete = [_add_reasons(entry, history, now) for entry in _add_durations(entries)]
    if shows_still_pending:
        complete = _add_current_reason(complete, workload, history, now)
    if not shows_still_pending:
        return Timeline(tuple(reversed(_remove_repeated_messages(complete))), len(rows) > MAX_EVENTS)
    complete += _checkpoint_entries(workload)
    complete.sort(key=lambda entry: entry.at)
    complete += _expected_entries(actor, workload, now)
    periods = find_periods(reversed(shown), workload, now)
    is_pending = workload.phase in PENDING_PHASES
    expected = expected_periods(workload, expected_start(workload, now)[0] if is_pending else None, now)
    evicted = [entry for entry in complete if entry.state == EVICTION]
    lost_work = find_lost_work(periods, [(entry.at, _seconds_lost(entry)) for entry in evicted])
    lost_work += find_work_lost_in_failure(periods, workload)
    complete = _assign_periods(complete, [*periods, *expected])
    return Timeline(
        tuple(reversed(_remove_repeated_messages(complete))),
        len(rows) > MAX_EVENTS,
        build_bar(
            periods,
            expected,
            [entry.at for entry in evicted],
            lost_work,
            workload.last_checkpoint_at,
            is_live=workload.ended_at is None,
            has_failed=workload.phase == Phase.FAILED,
            requeued=next(
                (row.at for row in shown if row.kind == "edited" and row.data.get("increases")), None
            ),
        ),
        "" if len(rows) > MAX_EVENTS else summarize(workload, periods),
    )


def _add_current_reason(
    entries: Sequence[TimelineEntry], workload: Workload, history: Sequence[PendingReason], now: datetime
) -> list[TimelineEntry]:
    """Add the current reason to the entry that begins the current period.

    If there is no such entry, add a new one.
    """
    evaluated_at = workload.explained_at if workload.reason and workload.phase in PENDING_PHASES else None
    if evaluated_at is None:
        return list(entries)
    is_pending = workload.phase == Phase.PENDING
    reason = f"{str(pending_reason(workload)).removesuffix('.')}." if is_pending else workload.message
    parts = reasons_in_period(history, workload.since, None)
    reasons = _summarize_reasons(parts, now) if len(parts) > 1 else None
    state = STATES[workload.phase]
    place = next((n for n in reversed(range(len(entries))) if entries[n].state in STATES.values()), None)
    if place is None or entries[place].state != state:
        so_far = parts[0].duration(now) if len(parts) == 1 else None
        at = max(now, evaluated_at)
        alone = TimelineEntry(
            at, STILL_PENDING, "", "", so_far=so_far, current_reason=reason, reasons=reasons, state="pending"
        )
        return [*entries, alone]
    begin = entries[place]
    current = replace(begin, so_far=now - begin.at, current_reason=reason, reasons=reasons)
    return [*entries[:place], current, *entries[place + 1 :]]


def _seconds_lost(entry: TimelineEntry) -> float:
    """Return how long the pods of an evicted workload had run since their last checkpoint."""
    rows = [each.row for each in entry.evictions if each.row.entire_workload and each.row.gpu_milli]
    return max((MILLI * row.lost_gpu_seconds / row.gpu_milli for row in rows), default=0.0)


def _assign_periods(entries: Iterable[TimelineEntry], periods: Sequence[Period]) -> list[TimelineEntry]:
    """Set each entry's period number.

    A past entry belongs to the period that begins at its time. A future entry belongs to the expected period
    that ends at its time.
    """
    begins = {period.begin: number for number, period in enumerate(periods) if not period.is_expected}
    ends = {period.end: number for number, period in enumerate(periods) if period.is_expected}
    return [
        replace(entry, period=(ends if entry.tone == FUTURE else begins).get(entry.at)) for entry in entries
    ]


def _checkpoint_entries(workload: Workload) -> list[TimelineEntry]:
    saved = workload.last_checkpoint_at
    if saved is None:
        return []
    message = "" if workload.ended_at else "The next run resumes from this checkpoint."
    return [TimelineEntry(saved, "Last checkpoint", message, "", state="checkpoint")]


def _expected_entries(actor: Actor, workload: Workload, now: datetime) -> list[TimelineEntry]:
    """Return the future events that are known: end of the restart delay, start, and end of the runtime."""
    expected = []
    if workload.phase == Phase.PENDING and workload.backoff_until is not None:
        expected.append(TimelineEntry(workload.backoff_until, "Restart delay ends", "", FUTURE))
    start = expected_start(workload, now)[0] if workload.phase in PENDING_PHASES else None
    if start is not None:
        ends = expected_start_after(viewer_for(actor), workload.explanation or {}, start)
        links = tuple(link_awaited_ends(actor, ends))
        expected.append(
            TimelineEntry(
                start, "Expected start", "", FUTURE, is_estimate=True, links=links, state="starting"
            )
        )
    if workload.phase == Phase.RUNNING and workload.started_at is not None and workload.max_runtime:
        end = workload.started_at + timedelta(seconds=workload.max_runtime)
        expected.append(TimelineEntry(end, "Reaches max runtime", "", FUTURE))
    expected.sort(key=lambda entry: (entry.at, entry.title))
    return [entry for entry in expected if entry.at > now]


def _build_entry(row: Event, workload: Workload, evictions: tuple[RenderedEviction, ...]) -> TimelineEntry:
    reason = str(row.data.get("reason", ""))
    eviction = TITLES_BY_REASON.get(reason) if row.kind == Phase.STOPPING else _partial_eviction(row.kind)
    if eviction is None and evictions:
        eviction = KIND_TITLES.get(evictions[0].row.kind, "Evicted")
    title = eviction or PHASE_TITLES.get(row.kind) or row.kind.replace("_", " ").capitalize()
    tone = "warn" if eviction else TONES.get(row.kind, "")
    message = f"{row.message.removesuffix('.')}." if eviction and row.message else row.message
    if row.kind == "edited":
        message = replace_paths_with_labels(message, row.data.get("paths", ()), workload.spec)
    state = EVICTION if eviction or evictions else STATES.get(row.kind, "")
    described = _sole_eviction_with_preemptor(evictions)
    return TimelineEntry(
        row.at,
        title,
        "" if described else message,
        tone,
        evictions=evictions,
        eviction=described,
        state=state,
    )


def _sole_eviction_with_preemptor(evictions: Sequence[RenderedEviction]) -> RenderedEviction | None:
    return evictions[0] if len(evictions) == 1 and evictions[0].preemptor is not None else None


def _partial_eviction(kind: str) -> str | None:
    """Return the title of an event at which a gang lost replicas but kept running, or None."""
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
    described = _sole_eviction_with_preemptor([eviction])
    message = "" if described else f"{eviction.summary}."
    return TimelineEntry(
        eviction.row.at, title, message, "warn", evictions=(eviction,), eviction=described, state=EVICTION
    )


def _add_durations(entries: Iterable[TimelineEntry]) -> list[TimelineEntry]:
    complete: list[TimelineEntry] = []
    since: TimelineEntry | None = None
    for entry in entries:
        lasted, verb = None, ""
        if since is not None and entry.title != since.title:
            if since.title in ("Submitted", "Pending") and entry.title in ("Starting", "Running"):
                lasted, verb = entry.at - since.at, "pending for"
            elif since.title == "Running" and entry.title not in STILL_RUNNING:
                lasted, verb = entry.at - since.at, "ran for"
            elif since.title in STOPS and entry.title not in STILL_RUNNING:
                lasted, verb = entry.at - since.at, "stopping for"
        complete.append(replace(entry, lasted=lasted, lasted_verb=verb))
        if entry.title in ("Submitted", "Pending", "Running", "Stopping") or verb:
            since = entry
    return complete


def _remove_repeated_messages(entries: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    return [
        replace(entry, message="") if following and entry.message == following.message else entry
        for entry, following in zip_longest(entries, entries[1:])
    ]


def _add_reasons(entry: TimelineEntry, history: Sequence[PendingReason], now: datetime) -> TimelineEntry:
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
