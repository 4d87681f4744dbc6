"""Parse usage queries from REST and pages."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from scheduler.reports.usage.report import LONGEST, Dimension, Step, UsageRequest

USUAL = timedelta(days=30)


def usage_request(
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    group_by: Sequence[str] = (),
    step: str | None = None,
    time_zone: str | None = None,
    only: Mapping[str, str | None] | None = None,
) -> UsageRequest:
    """Return a request, by default for the last thirty days by department and project. Raises Invalid."""
    problems: list[Problem] = []
    begin, end = since or (until or now) - USUAL, until or now
    cut = Step(step) if step else None
    if begin >= end:
        allowed = f"before {end.isoformat()}"
        problems.append(Problem("since", "is not before until", begin.isoformat(), allowed))
    elif end - begin > LONGEST[cut]:
        named = "since" if cut is None else "step"
        allowed = f"at most {LONGEST[cut].days} days{f' with step {cut}' if cut else ''}"
        problems.append(Problem(named, "makes the report too long", f"{(end - begin).days} days", allowed))
    if len(set(group_by)) != len(group_by):
        problems.append(Problem("group_by", "has a duplicate", ", ".join(group_by), "each dimension once"))
    if problems:
        raise Invalid(problems)
    return UsageRequest(
        since=begin,
        until=end,
        group_by=tuple(Dimension(word) for word in group_by) or (Dimension.DEPARTMENT, Dimension.PROJECT),
        step=cut,
        time_zone=zone_named(time_zone or "UTC"),
        only={Dimension(key): name for key, name in (only or {}).items() if name},
    )


def zone_named(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        allowed = "a time zone such as Europe/Berlin"
        raise Invalid([Problem("time_zone", "is not a time zone", shown(name), allowed)]) from None
