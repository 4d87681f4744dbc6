"""Timeline of a workload."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from projects.acting import Acting
from projects.models import Event, Phase, Workload
from projects.selectors import events
from scheduler.reports.evictions.rendering import Told
from scheduler.reports.explanations.pending_history import Waited, in_all, of_one_wait, wait_story

MOST_EVENTS = 100
FEW = 4  # reasons of one wait that are told one after another
BELONG = timedelta(seconds=30)  # an eviction and the event of it are written in one transaction
WAITS = (Phase.PENDING, Phase.RESERVED)
GAVE_WAY = {
    "Preempted": "Gave way",
    "Reclaimed": "Gave way",
    "Consolidated": "Moved",
    "Shrunk": "Gave back growth",
    "StaleGang": "Stopped, below its minimum",
    "Drained": "Left its node",
}
TITLES = {
    "submitted": "Submitted",
    Phase.PENDING: "Waits",
    Phase.RESERVED: "Has a place promised",
    Phase.STARTING: "Starts",
    Phase.RUNNING: "Runs",
    Phase.STOPPING: "Stops",
}
TONES = {"running": "good", "completed": "good", "failed": "bad", "stopping": "warn", "lost": "bad",
         "engine_failed": "bad"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waits:
    """For what it waited during one wait: one after another, or, of many, what came to most in all."""

    told: tuple[tuple[str, timedelta], ...]
    parts: tuple[tuple[str, datetime, timedelta], ...]

    @property
    def in_all(self) -> bool:
        return len(self.parts) > FEW


@dataclass(frozen=True, slots=True)
class Entry:
    """`took` is how long what came before it lasted; `evictions` are those it tells of, to be opened."""

    at: datetime
    title: str
    message: str
    tone: str
    took: timedelta | None = None
    before: str = ""  # what lasted so long
    evictions: tuple[Told, ...] = ()
    waits: Waits | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The latest first. `more`: there are older events than those."""

    entries: tuple[Entry, ...]
    more: bool


def timeline(acting: Acting, workload: Workload, gave: Sequence[Told], took: Sequence[Told]) -> Timeline:
    rows = list(events(acting).filter(workload_id=workload.pk)[: MOST_EVENTS + 1])
    shown = rows[:MOST_EVENTS]
    left = list(gave)
    entries = [_entry(row, _of_event(row, left)) for row in reversed(shown)]
    entries += [_alone(each) for each in left if not shown or each.row.at >= shown[-1].at]
    entries += [
        Entry(each.row.at, "Others gave way for it", each.summary, "", evictions=(each,))
        for each in took
        if not shown or each.row.at >= shown[-1].at
    ]
    entries.sort(key=lambda entry: entry.at)
    story, now = wait_story(workload), timezone.now()
    told = [_with_reasons(entry, story, now) for entry in _with_waits(entries)]
    if workload.phase in WAITS and workload.reason and workload.explained_at is not None:
        last = Entry(workload.explained_at, "Still waits", workload.message, "warn")
        told.append(replace(last, waits=_waits(of_one_wait(story, workload.since, None), now)))
    return Timeline(tuple(reversed(told)), len(rows) > MOST_EVENTS)


def _entry(row: Event, evictions: tuple[Told, ...]) -> Entry:
    reason = str(row.data.get("reason", ""))
    gave_way = GAVE_WAY.get(reason) if row.kind == Phase.STOPPING else _part(row.kind)
    gave_way = gave_way or ("Gave way" if evictions else None)
    title = gave_way or TITLES.get(row.kind) or row.kind.replace("_", " ").capitalize()
    tone = "warn" if gave_way else TONES.get(row.kind, "")
    return Entry(row.at, title, row.message, tone, evictions=evictions)


def _part(kind: str) -> str | None:
    """A part of the gang gave way, the rest runs on: the event is of that kind itself."""
    return next((title for reason, title in GAVE_WAY.items() if reason.lower() == kind), None)


def _of_event(row: Event, left: list[Told]) -> tuple[Told, ...]:
    """Those that this event tells of; each is told once."""
    if row.kind != Phase.STOPPING and _part(row.kind) is None:
        return ()
    found = tuple(each for each in left if abs(each.row.at - row.at) <= BELONG)
    for each in found:
        left.remove(each)
    return found


def _alone(each: Told) -> Entry:
    return Entry(each.row.at, "Gave way", each.summary, "warn", evictions=(each,))


def _with_waits(entries: Iterable[Entry]) -> list[Entry]:
    """Between two changes of state: how long it waited, and how long it ran."""
    found: list[Entry] = []
    since: Entry | None = None
    for entry in entries:
        took, before = None, ""
        if since is not None and entry.title != since.title:
            if since.title in ("Submitted", "Waits") and entry.title == "Starts":
                took, before = entry.at - since.at, "waited"
            elif since.title == "Runs" and entry.title not in ("Others gave way for it", "Gave back growth"):
                took, before = entry.at - since.at, "ran"
        found.append(replace(entry, took=took, before=before))
        if entry.title in ("Submitted", "Waits", "Runs") or before:
            since = entry
    return found


def _with_reasons(entry: Entry, story: Sequence[Waited], now: datetime) -> Entry:
    if entry.before != "waited" or entry.took is None:
        return entry
    return replace(entry, waits=_waits(of_one_wait(story, entry.at - entry.took, entry.at), now))


def _waits(parts: Sequence[Waited], now: datetime) -> Waits | None:
    if not parts:
        return None
    each = tuple((part.reason, part.since, part.lasted(now)) for part in parts)
    told = in_all(parts, now) if len(parts) > FEW else [(reason, lasted) for reason, _, lasted in each]
    return Waits(tuple(told), each)
