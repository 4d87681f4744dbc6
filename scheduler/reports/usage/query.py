"""Validate usage queries from REST and web pages."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from scheduler.reports.usage.report import MAX_PERIODS, ReportStep, UsageDimension, UsageRequest

DEFAULT_PERIOD = timedelta(days=30)


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
    """Return a usage request.

    By default, it covers the last 30 days by department and project. Raises Invalid if a parameter is
    invalid.
    """
    problems: list[Problem] = []
    begin, end = since or (until or now) - DEFAULT_PERIOD, until or now
    period_step = ReportStep(step) if step else None
    if begin >= end:
        allowed = f"before {end.isoformat()}"
        problems.append(Problem("since", "is not before `until`", begin.isoformat(), allowed))
    elif end - begin > MAX_PERIODS[period_step]:
        problem_path = "since" if period_step is None else "step"
        with_step = f" with step {period_step}" if period_step else ""
        allowed = f"at most {MAX_PERIODS[period_step].days} days{with_step}"
        problems.append(
            Problem(problem_path, "makes the report too long", f"{(end - begin).days} days", allowed)
        )
    if len(set(group_by)) != len(group_by):
        problems.append(Problem("group_by", "has a duplicate", ", ".join(group_by), "each dimension once"))
    if problems:
        raise Invalid(problems)
    return UsageRequest(
        since=begin,
        until=end,
        group_by=tuple(UsageDimension(word) for word in group_by)
        or (UsageDimension.DEPARTMENT, UsageDimension.PROJECT),
        step=period_step,
        time_zone=parse_time_zone(time_zone or "UTC"),
        only={UsageDimension(key): name for key, name in (only or {}).items() if name},
    )


def parse_time_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        allowed = "a time zone such as Europe/Berlin"
        raise Invalid(
            [Problem("time_zone", "is not a valid time zone", format_value(name), allowed)]
        ) from None
