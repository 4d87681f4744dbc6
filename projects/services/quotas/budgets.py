"""Set and delete monthly budgets."""

import time
from collections.abc import Mapping
from datetime import date
from typing import Any

from django.db import IntegrityError, transaction
from psycopg.errors import UniqueViolation

from berth.core.errors import Invalid, NotFound, PreconditionFailed
from berth.core.problems import Problem, shown
from berth.db.references import with_living_references
from projects.acting import Acting
from projects.models import Budget, BudgetWarning, Department, Project
from projects.models.budgets import MAX_HOURS, MAX_PERCENT, default_warnings
from projects.services import announce, audit
from projects.services.quotas.write import owner_columns, require_to_set

MAX_WARNINGS = 10
KEYS = ("gpu_hours", "warn_at")


def set_budget(
    *,
    acting: Acting,
    owner: Department | Project,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Budget:
    """Create or change a budget. Missing keys keep their values. `expected_version` 0 means "none yet".

    Requires the permission to set the owner's quota. Raises Invalid, PreconditionFailed, NotFound, Forbidden.
    """
    require_to_set(acting, owner)
    try:
        with with_living_references(owner.name):
            stored = Budget.objects.select_for_update(of=("self",)).filter(**owner_columns(owner)).first()
            _check_version(stored, expected_version)
            columns = _columns(values, new=stored is None)
            budget = stored or Budget(version=0, **owner_columns(owner))
            before = values_of(stored) if stored else None
            for column, value in columns.items():
                setattr(budget, column, value)
            if before != values_of(budget):
                budget.version = _next_version(budget.version)
                budget.save()
                _record(acting, "set_budget", budget, before, values_of(budget))
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("This budget was created in the meantime. Read it again.") from None
    return budget


def delete_budget(*, acting: Acting, budget: Budget, expected_version: int | None = None) -> None:
    require_to_set(acting, budget.owner)
    with transaction.atomic():
        locked = Budget.objects.select_for_update(of=("self",)).filter(pk=budget.pk).first()
        if locked is None:
            raise NotFound("This budget was already deleted.")
        _check_version(locked, expected_version)
        _record(acting, "delete_budget", locked, values_of(locked), None)
        locked.delete()


def record_warning(budget: Budget, month: date, percent: int) -> bool:
    """Record that a warning threshold was reached. Return False if it had already been recorded."""
    _, created = BudgetWarning.objects.get_or_create(budget=budget, month=month, percent=percent)
    return created


def values_of(budget: Budget) -> dict[str, Any]:
    return {"gpu_hours": budget.gpu_hours, "warn_at": list(budget.warn_at)}


def _columns(values: Mapping[str, Any], *, new: bool) -> dict[str, Any]:
    problems = [
        Problem(str(key), "unknown key", shown(value), ", ".join(KEYS))
        for key, value in values.items()
        if key not in KEYS
    ]
    columns: dict[str, Any] = {}
    if "gpu_hours" in values:
        columns["gpu_hours"] = _hours(values["gpu_hours"], problems)
    elif new:
        problems.append(Problem("gpu_hours", "is required", "", f"1 to {MAX_HOURS}"))
    if "warn_at" in values:
        columns["warn_at"] = _warnings(values["warn_at"], problems)
    if problems:
        raise Invalid(problems)
    return columns


def _hours(value: Any, problems: list[Problem]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_HOURS:
        return value
    problems.append(Problem("gpu_hours", "is not a number of GPU-hours", shown(value), f"1 to {MAX_HOURS}"))
    return 0


def _warnings(value: Any, problems: list[Problem]) -> list[int]:
    if value is None:
        return default_warnings()
    is_list = isinstance(value, list | tuple) and len(value) <= MAX_WARNINGS
    if is_list and all(type(each) is int and 1 <= each <= MAX_PERCENT for each in value):
        return sorted(set(value))
    allowed = f"at most {MAX_WARNINGS} whole percentages, 1 to {MAX_PERCENT}"
    problems.append(Problem("warn_at", "is not a list of percentages", shown(value), allowed))
    return []


def _check_version(budget: Budget | None, expected: int | None) -> None:
    current = budget.version if budget else 0
    if expected is not None and expected != current:
        raise PreconditionFailed(
            f"You edited version {expected}; the current version is {current}.",
            current=values_of(budget) if budget else None,
            version=current,
        )


def _next_version(version: int) -> int:
    """Derive versions from the clock, so that a new budget never reuses the version of a deleted budget."""
    return max(version + 1, time.time_ns() // 1000)


def _record(
    acting: Acting, action: str, budget: Budget, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    if before and after:
        before, after = audit.differences(before, after)
    audit.write_down(acting, action, budget, before=before, after=after, **owner_columns(budget.owner))
    announce.tenants_changed(**{f"{key}_id": owner.pk for key, owner in owner_columns(budget.owner).items()})
