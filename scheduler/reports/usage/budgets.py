"""Monthly budgets: usage, forecast and notifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction

from projects import selectors
from projects.acting import Acting
from projects.models import Budget, Department
from projects.services import announce
from projects.services.notifications.notify import notify_budget
from projects.services.quotas.budgets import record_warning
from scheduler.reports.usage.report import Dimension, UsageRequest, hour_of, report

PACE = timedelta(days=7)
WHOLE = 100


@dataclass(frozen=True, slots=True)
class Standing:
    """A budget's standing in GPU-hours. `pace` is the hourly average over the last seven days.

    `forecast` is the usage at the end of the month at that pace.
    """

    budget: Budget
    begin: datetime
    end: datetime
    used: float
    pace: float
    forecast: float

    @property
    def percent(self) -> float:
        return WHOLE * self.used / self.budget.gpu_hours

    @property
    def forecast_percent(self) -> float:
        return WHOLE * self.forecast / self.budget.gpu_hours

    @property
    def crossed(self) -> list[int]:
        """Warning percentages that the usage has reached."""
        return [percent for percent in self.budget.warn_at if self.percent >= percent]


def standings(budgets: Sequence[Budget], now: datetime) -> list[Standing]:
    """Return the budgets' standings, in the order of `budgets`."""
    if not budgets:
        return []
    begin, end = month_of(now)
    keys = [_key(budget) for budget in budgets]
    pace_begin = hour_of(now - PACE)
    pace_hours = (now - pace_begin).total_seconds() / 3600
    used, recent = _by_owner(keys, begin, now), _by_owner(keys, pace_begin, now)
    result = []
    for budget, key in zip(budgets, keys, strict=True):
        spent = used.get(key, 0.0)
        pace = recent.get(key, 0.0) / pace_hours
        left = (end - now).total_seconds() / 3600
        result.append(Standing(budget, begin, end, spent, pace, spent + pace * left))
    return result


def watch_budgets(now: datetime) -> int:
    """Record due warnings and notify about each once a month; return the number of new warnings."""
    count = 0
    for standing in standings(list(selectors.budgets(Acting.system("budgets"))), now):
        for percent in standing.crossed:
            with transaction.atomic():
                if not record_warning(standing.budget, standing.begin.date(), percent):
                    continue
                count += 1
                notify_budget(standing.budget, percent, standing.used, standing.forecast, now)
                announce.tenants_changed(
                    department_id=standing.budget.department_id, project_id=standing.budget.project_id
                )
    return count


def month_of(now: datetime) -> tuple[datetime, datetime]:
    begin = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, (begin + timedelta(days=32)).replace(day=1)


Key = tuple[Dimension, str]


def _by_owner(keys: Sequence[Key], since: datetime, now: datetime) -> dict[Key, float]:
    """Return GPU-hours by owner name, which is unique among existing owners."""
    sums: dict[Key, float] = {}
    names: dict[Dimension, list[str]] = {}
    for dimension, name in keys:
        names.setdefault(dimension, []).append(name)
    for row in report(Acting.system("budgets"), UsageRequest(since, now, any_of=names), now):
        for dimension, name in row.names.items():
            sums[dimension, name] = sums.get((dimension, name), 0.0) + row.gpu_hours
    return sums


def _key(budget: Budget) -> Key:
    owner = budget.owner
    return (Dimension.DEPARTMENT if isinstance(owner, Department) else Dimension.PROJECT), owner.name
