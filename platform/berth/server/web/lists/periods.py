"""Period of a list: a preset such as the last 24 hours, or the dates From and To.

If a date is invalid, the page says so and shows no rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar
from zoneinfo import ZoneInfo

from django.db.models import Model, QuerySet

from berth.core.errors import Malformed
from berth.server.web.zones import parse_time

PRESETS = {"24h": ("Last 24 hours", timedelta(hours=24)), "7d": ("Last 7 days", timedelta(days=7))}
ALL, CUSTOM = "all", "custom"
CHOICES = (
    (ALL, "Any time"),
    *((key, title) for key, (title, _) in PRESETS.items()),
    (CUSTOM, "Custom dates"),
)
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class ListPeriod:
    """Time range that a list shows.

    `problems` contains a sentence for each invalid query parameter. `choice` is ALL, the selected preset or
    CUSTOM.
    """

    since: datetime | None = None
    until: datetime | None = None
    choice: str = ALL
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def problem(self) -> str:
        return " ".join(dict.fromkeys(self.problems.values()))

    @property
    def is_set(self) -> bool:
        return bool(self.since or self.until or self.problems)

    def restrict(self, rows: QuerySet[M], column: str = "at") -> QuerySet[M]:
        """Return the rows of the period, or no rows if a date is invalid."""
        if self.problems:
            return rows.none()
        if self.since:
            rows = rows.filter(**{f"{column}__gte": self.since})
        return rows.filter(**{f"{column}__lte": self.until}) if self.until else rows

    def require_valid(self) -> None:
        """Raise Malformed if a date is invalid. A page would show the problem, but a file cannot."""
        if self.problems:
            raise Malformed(self.problem)


def parse_period(parameters: Mapping[str, str], zone: ZoneInfo, now: datetime) -> ListPeriod:
    """Return the period in the query parameters `period`, `since` and `until`.

    ALL and presets override the dates.
    """
    choice, since, until = (parameters.get(key, "").strip() for key in ("period", "since", "until"))
    if choice == ALL:
        return ListPeriod()
    if choice in PRESETS:
        return ListPeriod(since=now - PRESETS[choice][1], choice=choice)
    problems: dict[str, str] = {}
    if choice not in ("", CUSTOM):
        keys = ", ".join(key for key, _ in CHOICES)
        problems["period"] = f"Period is “{choice}”. Allowed: {keys}."
    begin, end = parse_time(since, zone), parse_time(until, zone, end=True)
    for key, title, text, at in (("since", "From", since, begin), ("until", "To", until, end)):
        if text and at is None:
            problems[key] = f"{title} is “{text}”, which is not a date. Enter a date such as {now:%Y-%m-%d}."
    if begin and end and begin > end:
        problems["since"] = problems["until"] = (
            f"From ({since}) is after To ({until}). Enter an earlier From or a later To."
        )
    return ListPeriod(begin, end, CUSTOM if choice or since or until else ALL, problems)
