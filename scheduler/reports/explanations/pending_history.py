"""History of a workload's pending reasons, with durations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from projects.models import Workload

SKEW = timedelta(seconds=1)  # between the clocks of the database and of the scheduler


@dataclass(frozen=True, slots=True)
class Waited:
    """`until` None: it waits for this now."""

    reason: str
    since: datetime
    until: datetime | None

    def lasted(self, now: datetime) -> timedelta:
        return max(timedelta(), (self.until or now) - self.since)


def wait_story(workload: Workload) -> list[Waited]:
    """Return the pending reasons, oldest first; the writer stores at most `MOST_REASONS`."""
    found: list[Waited] = []
    then: datetime | None = None  # when the next one began
    for row in reversed(workload.wait_reasons):
        since, ended = datetime.fromisoformat(row["since"]), row.get("until")
        found.append(Waited(row["reason"], since, datetime.fromisoformat(ended) if ended else then))
        then = since
    return found[::-1]


def of_one_wait(story: Sequence[Waited], begin: datetime, end: datetime | None) -> tuple[Waited, ...]:
    """What it waited for between these two; `end` None: it still waits."""
    return tuple(each for each in story if each.since >= begin - SKEW and (end is None or each.since <= end))


def in_all(parts: Iterable[Waited], now: datetime) -> list[tuple[str, timedelta]]:
    """By reason, the longest first."""
    found: dict[str, timedelta] = {}
    for each in parts:
        found[each.reason] = found.get(each.reason, timedelta()) + each.lasted(now)
    return sorted(found.items(), key=lambda entry: (-entry[1], entry[0]))
