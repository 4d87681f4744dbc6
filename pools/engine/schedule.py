"""Parse cron schedules and find their latest run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

from berth.core.problems import format_value

NICKNAMES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
ALLOWED = {
    "minute": "0 to 59", "hour": "0 to 23", "day-of-month": "1 to 31", "month": "1 to 12 or jan to dec",
    "day-of-week": "0 to 7 or sun to sat",
}  # fmt: skip
FIELDS = "minute, hour, day of month, month and day of week"


class InvalidSchedule(ValueError):
    """Raised for an invalid cron schedule. The message names the invalid fields and their allowed values."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron schedule with five fields.

    If both day of month and day of week are set, one of them has to match.
    """

    expression: str

    def last_run(self, now: datetime, zone: tzinfo, *, within: timedelta) -> datetime | None:
        """Return the latest scheduled time that is less than `within` before `now`, or None if there is none.

        The schedule is in the time zone `zone`. If a time occurs twice because the clocks go back, the first
        occurrence counts.
        """
        # The three hours are a margin for daylight saving changes.
        latest = now.astimezone(zone).replace(tzinfo=None) + timedelta(hours=3)
        for run in CronSim(self.expression, latest, reverse=True):
            age = now.timestamp() - run.replace(tzinfo=zone).timestamp()
            if age >= within.total_seconds():
                return None
            if age >= 0:
                return run.replace(tzinfo=zone).astimezone(UTC)
        return None


def parse_schedule(text: str) -> Schedule:
    """Parse a cron expression or a nickname such as @daily. Raises InvalidSchedule."""
    words = NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != 5:
        raise InvalidSchedule(f"has {len(words)} fields instead of 5: {FIELDS}")
    try:
        CronSim(" ".join(words), datetime(2000, 1, 1))  # noqa: DTZ001 - only parsed
    except CronSimError as error:
        raise InvalidSchedule(_describe_invalid_fields(words) or _describe_field(error)) from None
    return Schedule(" ".join(words))


def _describe_invalid_fields(words: Sequence[str]) -> str:
    """Return a sentence that names each field that is invalid by itself, or "" if there is none."""
    invalid = []
    for position, word in enumerate(words):
        alone = [word if index == position else "*" for index in range(len(words))]
        try:
            CronSim(" ".join(alone), datetime(2000, 1, 1))  # noqa: DTZ001 - only parsed
        except CronSimError as error:
            invalid.append((str(error).removeprefix("Bad "), format_value(word)))
    fields = " and ".join(f"{field} {value}" for field, value in invalid)
    if len(invalid) == 1:
        return f"has an invalid {fields}; allowed: {ALLOWED[invalid[0][0]]}"
    allowed = ", ".join(f"{field} {ALLOWED[field]}" for field, _ in invalid)
    return f"has an invalid {fields}; allowed: {allowed}" if invalid else ""


def _describe_field(error: CronSimError) -> str:
    field = str(error).removeprefix("Bad ")
    return f"has an invalid {field}; allowed: {ALLOWED.get(field, FIELDS)}"
