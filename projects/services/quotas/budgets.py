"""Set and remove monthly budgets."""

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
from projects.models import Budget, BudgetNotice, Department, Project
from projects.models.budgets import HOURS_MOST, PERCENT_MOST, usual_warnings
from projects.services import announce, audit
from projects.services.quotas.write import place_of, require_to_set

WARNINGS_MOST = 10
KEYS = ("gpu_hours", "warn_at")


def set_budget(
    *,
    acting: Acting,
    owner: Department | Project,
    values: Mapping[str, Any],
    expected_version: int | None = None,
) -> Budget:
    """Creates or changes it; a key left out keeps its value. `expected_version` 0: "there is none yet".

    Whoever may set the owner's quota may set its budget. Raises Invalid, PreconditionFailed, NotFound,
    Forbidden.
    """
    require_to_set(acting, owner)
    try:
        with with_living_references(owner.name):
            stored = Budget.objects.select_for_update(of=("self",)).filter(**place_of(owner)).first()
            _guard(stored, expected_version)
            columns = _columns(values, new=stored is None)
            budget = stored or Budget(version=0, **place_of(owner))
            before = values_of(stored) if stored else None
            for column, value in columns.items():
                setattr(budget, column, value)
            if before != values_of(budget):
                budget.version = _next(budget.version)
                budget.save()
                _written(acting, "set_budget", budget, before, values_of(budget))
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("Somebody created this budget at the same moment: read it again.") from None
    return budget


def remove_budget(*, acting: Acting, budget: Budget, expected_version: int | None = None) -> None:
    require_to_set(acting, budget.owner)
    with transaction.atomic():
        locked = Budget.objects.select_for_update(of=("self",)).filter(pk=budget.pk).first()
        if locked is None:
            raise NotFound("This budget was removed already.")
        _guard(locked, expected_version)
        _written(acting, "remove_budget", locked, values_of(locked), None)
        locked.delete()


def tell_once(budget: Budget, month: date, percent: int) -> bool:
    """Writes down that so much is used; False when that was told already."""
    _, created = BudgetNotice.objects.get_or_create(budget=budget, month=month, percent=percent)
    return created


def values_of(budget: Budget) -> dict[str, Any]:
    return {"gpu_hours": budget.gpu_hours, "warn_at": list(budget.warn_at)}


def _columns(values: Mapping[str, Any], *, new: bool) -> dict[str, Any]:
    problems = [
        Problem(str(key), "unknown key", shown(given), ", ".join(KEYS))
        for key, given in values.items()
        if key not in KEYS
    ]
    columns: dict[str, Any] = {}
    if "gpu_hours" in values:
        columns["gpu_hours"] = _hours(values["gpu_hours"], problems)
    elif new:
        problems.append(Problem("gpu_hours", "is missing", "", f"1 to {HOURS_MOST}"))
    if "warn_at" in values:
        columns["warn_at"] = _warnings(values["warn_at"], problems)
    if problems:
        raise Invalid(problems)
    return columns


def _hours(given: Any, problems: list[Problem]) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= HOURS_MOST:
        return given
    problems.append(Problem("gpu_hours", "is not a number of GPU-hours", shown(given), f"1 to {HOURS_MOST}"))
    return 0


def _warnings(given: Any, problems: list[Problem]) -> list[int]:
    if given is None:
        return usual_warnings()
    fine = isinstance(given, list | tuple) and len(given) <= WARNINGS_MOST
    if fine and all(type(each) is int and 1 <= each <= PERCENT_MOST for each in given):
        return sorted(set(given))
    allowed = f"at most {WARNINGS_MOST} whole percents, 1 to {PERCENT_MOST}"
    problems.append(Problem("warn_at", "is not a list of percents", shown(given), allowed))
    return []


def _guard(budget: Budget | None, expected: int | None) -> None:
    present = budget.version if budget else 0
    if expected is not None and expected != present:
        raise PreconditionFailed(
            f"You edited version {expected}, the present version is {present}.",
            current=values_of(budget) if budget else None,
            version=present,
        )


def _next(version: int) -> int:
    """By the clock, so that one made anew never has the version of one that was removed."""
    return max(version + 1, time.time_ns() // 1000)


def _written(
    acting: Acting, action: str, budget: Budget, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    if before and after:
        before, after = audit.differences(before, after)
    audit.write_down(acting, action, budget, before=before, after=after, **place_of(budget.owner))
    announce.tenants_changed(**{f"{key}_id": owner.pk for key, owner in place_of(budget.owner).items()})
