"""Monthly budgets: usage, forecast and notifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction

from projects import selectors
from projects.actor import Actor
from projects.models import Budget, Department
from projects.services import announce
from projects.services.notifications.notify import notify_about_budget
from projects.services.quotas.budgets import record_warning
from scheduler.reports.usage.report import UsageDimension, UsageRequest, floor_to_hour, usage_report

PACE_PERIOD = timedelta(days=7)
FULL_PERCENT = 100


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """Usage and forecast for a budget, in GPU-hours.

    `pace` is the hourly average of the last seven days, and `forecast` is the usage at the end of the month
    at that pace.
    """

    budget: Budget
    begin: datetime
    end: datetime
    used: float
    pace: float
    forecast: float

    @property
    def percent(self) -> float:
        return FULL_PERCENT * self.used / self.budget.gpu_hours

    @property
    def forecast_percent(self) -> float:
        return FULL_PERCENT * self.forecast / self.budget.gpu_hours

    @property
    def reached_thresholds(self) -> list[int]:
        """Alert thresholds that the usage has reached, in percent."""
        return [percent for percent in self.budget.warn_at if self.percent >= percent]


def budget_statuses(budgets: Sequence[Budget], now: datetime) -> list[BudgetStatus]:
    """Return each budget's status, in the order of `budgets`."""
    if not budgets:
        return []
    begin, end = month_bounds(now)
    keys = [_owner_key(budget) for budget in budgets]
    pace_begin = floor_to_hour(now - PACE_PERIOD)
    pace_hours = (now - pace_begin).total_seconds() / 3600
    used, recent = _gpu_hours_by_owner(keys, begin, now), _gpu_hours_by_owner(keys, pace_begin, now)
    result = []
    for budget, key in zip(budgets, keys, strict=True):
        spent = used.get(key, 0.0)
        pace = recent.get(key, 0.0) / pace_hours
        left = (end - now).total_seconds() / 3600
        result.append(BudgetStatus(budget, begin, end, spent, pace, spent + pace * left))
    return result


def record_budget_warnings(now: datetime) -> int:
    """Record the budget warnings that are due, at most once per month, and send notifications.

    Return the number of new warnings.
    """
    count = 0
    for status in budget_statuses(list(selectors.budgets(Actor.system("budgets"))), now):
        for percent in status.reached_thresholds:
            with transaction.atomic():
                if not record_warning(status.budget, status.begin.date(), percent):
                    continue
                count += 1
                notify_about_budget(status.budget, percent, status.used, status.forecast, now)
                announce.tenants_changed(
                    department_id=status.budget.department_id, project_id=status.budget.project_id
                )
    return count


def month_bounds(now: datetime) -> tuple[datetime, datetime]:
    begin = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, (begin + timedelta(days=32)).replace(day=1)


Key = tuple[UsageDimension, str]


def _gpu_hours_by_owner(keys: Sequence[Key], since: datetime, now: datetime) -> dict[Key, float]:
    """Return each owner's GPU-hours since `since`, keyed by the owner's kind and name."""
    sums: dict[Key, float] = {}
    names: dict[UsageDimension, list[str]] = {}
    for dimension, name in keys:
        names.setdefault(dimension, []).append(name)
    for row in usage_report(Actor.system("budgets"), UsageRequest(since, now, any_of=names), now):
        for dimension, name in row.names.items():
            sums[dimension, name] = sums.get((dimension, name), 0.0) + row.gpu_hours
    return sums


def _owner_key(budget: Budget) -> Key:
    owner = budget.owner
    return (
        UsageDimension.DEPARTMENT if isinstance(owner, Department) else UsageDimension.PROJECT
    ), owner.name
