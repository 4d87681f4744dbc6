"""Parse five-field cron schedules and find their latest run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

NICKNAMES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LONGEST = {1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


@dataclass(frozen=True, slots=True)
class Field:
    title: str
    lowest: int
    highest: int
    names: Mapping[str, int]


FIELDS = (
    Field("minute", 0, 59, {}),
    Field("hour", 0, 23, {}),
    Field("day of the month", 1, 31, {}),
    Field("month", 1, 12, {name: number for number, name in enumerate(MONTHS, 1)}),
    Field("day of the week", 0, 7, {name: number for number, name in enumerate(DAYS)}),
)


class NotCron(ValueError):
    """Says what is wrong with the text."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Days as cron counts them: 0 is Sunday. Where both kinds of days are named, either will do."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def last(self, now: datetime, zone: tzinfo, *, within: timedelta) -> datetime | None:
        """When it came round last, by the clocks of `zone`; None: so long ago, or longer.

        Where clocks are put back, what they show twice counts the first time.
        """
        wall = now.astimezone(zone) + timedelta(hours=3)  # they may just have been put back
        for day in _backwards(wall.date(), within):
            if self._matches(day):
                for moment in self._times():
                    at = datetime.combine(day, moment, zone)
                    ago = now.timestamp() - at.timestamp()
                    if ago >= 0:
                        return at.astimezone(UTC) if ago < within.total_seconds() else None
        return None

    def _matches(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week

    def _times(self) -> Iterator[time]:
        """Latest first."""
        for hour in sorted(self.hours, reverse=True):
            for minute in sorted(self.minutes, reverse=True):
                yield time(hour, minute)


def cron(text: str) -> Cron:
    """Raises NotCron."""
    words = NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) != len(FIELDS):
        wanted = "minute, hour, day of the month, month, day of the week"
        raise NotCron(f"has {len(words)} of the 5 fields {wanted}")
    minutes, hours, days, months, weekdays = (
        _values(word.lower(), field) for word, field in zip(words, FIELDS, strict=True)
    )
    weekdays = frozenset(day % 7 for day in weekdays)
    either = not words[2].startswith("*") and not words[4].startswith("*")
    if not either and not any(min(days) <= LONGEST[month] for month in months):
        raise NotCron("never comes round: no such month has such a day")
    return Cron(minutes, hours, days, months, weekdays, either)


def _values(word: str, field: Field) -> frozenset[int]:
    return frozenset(number for part in word.split(",") for number in _part(part, field))


def _part(part: str, field: Field) -> range:
    span, slash, by = part.partition("/")
    step = _number(by, 1, field.highest, field) if slash else 1
    if span == "*":
        return range(field.lowest, field.highest + 1, step)
    first, dash, last = span.partition("-")
    begin = _named(first, field)
    end = _named(last, field) if dash else (field.highest if slash else begin)
    if end < begin:
        raise NotCron(f"has the range {span!r} backwards as {field.title}")
    return range(begin, end + 1, step)


def _named(word: str, field: Field) -> int:
    return field.names[word] if word in field.names else _number(word, field.lowest, field.highest, field)


def _number(word: str, lowest: int, highest: int, field: Field) -> int:
    if not (word.isascii() and word.isdigit()) or not lowest <= int(word) <= highest:
        raise NotCron(f"has {word!r} as {field.title}, which goes from {field.lowest} to {field.highest}")
    return int(word)


def _backwards(day: date, within: timedelta) -> Iterator[date]:
    for ago in range(within.days + 3):
        yield day - timedelta(days=ago)
