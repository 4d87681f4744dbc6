"""Validate the names in a user's filter of usage reports."""

from collections.abc import Mapping

from django.db.models import Q

from berth.core.problems import Problem
from berth.db.queries.known_names import NameColumn
from projects.access import fully_visible_departments, is_platform_admin, visible_projects
from projects.actor import Actor
from projects.known_names import (
    unknown_department_problem,
    unknown_pool_problem,
    unknown_project_problem,
    unknown_user_problem,
)
from scheduler.models import UsageHour
from scheduler.reports.usage.report import COLUMNS, UsageDimension

CHECKS = {
    UsageDimension.DEPARTMENT: unknown_department_problem,
    UsageDimension.PROJECT: unknown_project_problem,
    UsageDimension.USER: unknown_user_problem,
    UsageDimension.POOL: unknown_pool_problem,
}


def unknown_name_problems(actor: Actor, only: Mapping[UsageDimension, str]) -> list[Problem | None]:
    """Check each name in `only`, and return a problem or None for each.

    There is a problem if the user can see neither an object with this name nor any usage under it.
    """
    rows = UsageHour.objects.all()
    if not is_platform_admin(actor):
        rows = rows.filter(
            Q(project_id__in=visible_projects(actor).values("pk"))
            | Q(department_id__in=fully_visible_departments(actor).values("pk"))
        )
    return [CHECKS[key](actor, name, NameColumn(rows, COLUMNS[key])) for key, name in only.items()]
