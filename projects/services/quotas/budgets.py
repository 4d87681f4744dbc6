"""Set and delete monthly budgets."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from django.db import transaction

from berth.core.errors import Invalid, NotFound
from berth.core.problems import Problem, format_value
from berth.db.writes.references import check_foreign_keys
from projects.actor import Actor
from projects.models import Budget, BudgetWarning
from projects.models.budgets import MAX_HOURS, MAX_PERCENT, default_warnings
from projects.models.tenants import Tenant, owner_columns
from projects.services import announce, audit
from projects.services.project_rows import next_version
from projects.services.quotas.versions import check_version
from projects.services.quotas.write import require_quota_permission

MAX_WARNINGS = 10
KEYS = ("gpu_hours", "warn_at")


def set_budget(
    *,
    actor: Actor,
    owner: Tenant,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Budget:
    """Create or change a budget.

    Missing keys are unchanged. If `expected_version` is 0, the budget must not exist yet. Raises Invalid,
    PreconditionFailed, NotFound or Forbidden.
    """
    require_quota_permission(actor, owner)
    with check_foreign_keys(owner.name, created="this budget"):
        stored = Budget.objects.select_for_update(of=("self",)).filter(**owner_columns(owner)).first()
        check_version(stored, expected_version, budget_values)
        columns = _parse_columns(values, new=stored is None)
        budget = stored or Budget(version=0, **owner_columns(owner))
        before = budget_values(stored) if stored else None
        for column, value in columns.items():
            setattr(budget, column, value)
        if before != budget_values(budget):
            budget.version = next_version(budget.version)
            budget.save()
            _audit_change(actor, "set_budget", budget, before, budget_values(budget))
    return budget


def delete_budget(*, actor: Actor, budget: Budget, expected_version: int | None = None) -> None:
    require_quota_permission(actor, budget.owner)
    with transaction.atomic():
        locked = Budget.objects.select_for_update(of=("self",)).filter(pk=budget.pk).first()
        if locked is None:
            raise NotFound("This budget has been deleted.")
        check_version(locked, expected_version, budget_values)
        _audit_change(actor, "delete_budget", locked, budget_values(locked), None)
        locked.delete()


def record_warning(budget: Budget, month: date, percent: int) -> bool:
    """Record that a warning threshold was reached. Return False if it was already recorded."""
    _, created = BudgetWarning.objects.get_or_create(budget=budget, month=month, percent=percent)
    return created


def budget_values(budget: Budget) -> dict[str, Any]:
    return {"gpu_hours": budget.gpu_hours, "warn_at": list(budget.warn_at)}


def _parse_columns(values: Mapping[str, Any], *, new: bool) -> dict[str, Any]:
    problems = [
        Problem(str(key), "unknown key", format_value(value), ", ".join(KEYS))
        for key, value in values.items()
        if key not in KEYS
    ]
    columns: dict[str, Any] = {}
    if "gpu_hours" in values:
        columns["gpu_hours"] = _parse_hours(values["gpu_hours"], problems)
    elif new:
        problems.append(Problem("gpu_hours", "is required", "", f"1 to {MAX_HOURS}"))
    if "warn_at" in values:
        columns["warn_at"] = _parse_alert_thresholds(values["warn_at"], problems)
    if problems:
        raise Invalid(problems)
    return columns


def _parse_hours(value: Any, problems: list[Problem]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_HOURS:
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    message = "is out of range" if is_number else "is not a valid number of GPU-hours"
    problems.append(Problem("gpu_hours", message, format_value(value), f"1 to {MAX_HOURS}"))
    return 0


def _parse_alert_thresholds(value: Any, problems: list[Problem]) -> list[int]:
    if value is None:
        return default_warnings()
    allowed = f"at most {MAX_WARNINGS} whole percentages, 1 to {MAX_PERCENT}"
    is_list = isinstance(value, list | tuple) and all(type(percent) is int for percent in value)
    if not is_list or len(value) > MAX_WARNINGS:
        problems.append(
            Problem("warn_at", "is not a valid list of percentages", format_value(value), allowed)
        )
        return []
    problems += [
        Problem("warn_at", "is out of range", f"{percent}%", allowed)
        for percent in value
        if not 1 <= percent <= MAX_PERCENT
    ]
    return sorted(set(value))


def _audit_change(
    actor: Actor,
    action: audit.AuditAction,
    budget: Budget,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    audit.write_change(actor, action, budget, before, after, **owner_columns(budget.owner))
    announce.tenants_changed(**{f"{key}_id": owner.pk for key, owner in owner_columns(budget.owner).items()})
