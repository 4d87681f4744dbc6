"""History of a workload's pending reasons, with durations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from projects.models import Workload

CLOCK_SKEW = timedelta(seconds=1)  # tolerated skew between the database and scheduler clocks


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Reason why a workload was pending, and the period in which it applied.

    `until` is None while the reason still applies.
    """

    reason: str
    since: datetime
    until: datetime | None

    def duration(self, now: datetime) -> timedelta:
        return max(timedelta(), (self.until or now) - self.since)


def pending_history(workload: Workload) -> list[PendingReason]:
    """Return the workload's stored pending reasons, oldest first."""
    result: list[PendingReason] = []
    next_since: datetime | None = None  # start of the next reason
    for row in reversed(workload.pending_reasons):
        since, ended = datetime.fromisoformat(row["since"]), row.get("until")
        result.append(
            PendingReason(row["reason"], since, datetime.fromisoformat(ended) if ended else next_since)
        )
        next_since = since
    return result[::-1]


def reasons_in_period(
    history: Sequence[PendingReason], begin: datetime, end: datetime | None
) -> tuple[PendingReason, ...]:
    """Return the reasons that applied in one pending period. `end` is None while the period lasts."""
    return tuple(
        reason
        for reason in history
        if reason.since >= begin - CLOCK_SKEW and (end is None or reason.since <= end)
    )


def total_by_reason(parts: Iterable[PendingReason], now: datetime) -> list[tuple[str, timedelta]]:
    """Return how long each reason applied in total, longest first."""
    totals: dict[str, timedelta] = {}
    for reason in parts:
        totals[reason.reason] = totals.get(reason.reason, timedelta()) + reason.duration(now)
    return sorted(totals.items(), key=lambda entry: (-entry[1], entry[0]))
