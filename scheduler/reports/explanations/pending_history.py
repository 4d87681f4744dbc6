"""History of a workload's pending reasons, with durations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from projects.models import Workload

SKEW = timedelta(seconds=1)  # tolerance between the database and scheduler clocks


@dataclass(frozen=True, slots=True)
class PendingReason:
    """A pending reason with its period. `until` is None while the reason still applies."""

    reason: str
    since: datetime
    until: datetime | None

    def lasted(self, now: datetime) -> timedelta:
        return max(timedelta(), (self.until or now) - self.since)


def pending_history(workload: Workload) -> list[PendingReason]:
    """Return the pending reasons, oldest first; the writer stores at most `MOST_REASONS`."""
    result: list[PendingReason] = []
    then: datetime | None = None  # start of the next reason
    for row in reversed(workload.wait_reasons):
        since, ended = datetime.fromisoformat(row["since"]), row.get("until")
        result.append(PendingReason(row["reason"], since, datetime.fromisoformat(ended) if ended else then))
        then = since
    return result[::-1]


def during_wait(
    history: Sequence[PendingReason], begin: datetime, end: datetime | None
) -> tuple[PendingReason, ...]:
    """Return the reasons between two times. `end` is None while the workload is still pending."""
    return tuple(
        each for each in history if each.since >= begin - SKEW and (end is None or each.since <= end)
    )


def in_all(parts: Iterable[PendingReason], now: datetime) -> list[tuple[str, timedelta]]:
    """Return each reason's total duration, the longest first."""
    totals: dict[str, timedelta] = {}
    for each in parts:
        totals[each.reason] = totals.get(each.reason, timedelta()) + each.lasted(now)
    return sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))
