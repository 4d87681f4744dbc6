"""Check the names in list filters against the objects and history that the user can see."""

from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet

from berth.core.problems import Problem, format_value
from berth.db.queries.known_names import NameColumn, unknown_name_problem
from pools.models import QuotaGroup
from projects import selectors
from projects.access import visible_departments, visible_nodes, visible_pools, visible_projects
from projects.actor import Actor
from projects.models import Audit, Department, Project


def unknown_project_problem(
    actor: Actor, name: str | None, *history: NameColumn, path: str = "project"
) -> Problem | None:
    """Return a problem if the name belongs to no visible project, now or in the history. Otherwise,
    return None.
    """
    return unknown_name_problem(path, name, "a project", [NameColumn(visible_projects(actor)), *history])


def unknown_department_problem(actor: Actor, name: str | None, *history: NameColumn) -> Problem | None:
    return unknown_name_problem(
        "department", name, "a department", [NameColumn(visible_departments(actor)), *history]
    )


def unknown_pool_problem(actor: Actor, name: str | None, *history: NameColumn) -> Problem | None:
    return unknown_name_problem("pool", name, "a node pool", [NameColumn(visible_pools(actor)), *history])


def unknown_pool_or_group_problem(actor: Actor, name: str | None) -> Problem | None:
    """Return a problem if no visible pool or quota group has the name. Otherwise, return None."""
    groups: QuerySet[QuotaGroup] = selectors.quota_groups(actor)
    return unknown_pool_problem(actor, name, NameColumn(groups))


def unknown_node_problem(actor: Actor, name: str | None) -> Problem | None:
    return unknown_name_problem("node", name, "a node", [NameColumn(visible_nodes(actor))])


def unknown_user_problem(
    actor: Actor, name: str | None, *history: NameColumn, path: str = "user"
) -> Problem | None:
    """Return a problem if the actor cannot see a user with this name, else None.

    Actors can see themselves and the users of what they can see.
    """
    sources = [
        NameColumn(User.objects.filter(pk__in=[actor.user.pk] if actor.user else []), "username"),
        NameColumn(selectors.members(actor), "user__username"),
        NameColumn(selectors.users(actor), "username"),
        NameColumn(selectors.workloads(actor), "submitted_by__username"),
    ]
    return unknown_name_problem(path, name, "a user", [*sources, *history])


def unknown_id_problem(
    path: str, noun: str, value: UUID | None, *rows: tuple[QuerySet[Any], str]
) -> Problem | None:
    """Return a problem if no row has the ID, else None. `rows` contains pairs of a queryset and its ID
    column.
    """
    if value is None or any(each.filter(**{column: value}).exists() for each, column in rows):
        return None
    return Problem(path, "does not exist", format_value(str(value)), f"the ID of {noun} that you can see")


def project_history(actor: Actor) -> NameColumn:
    """Return the names of projects in the visible audit log, including deleted projects."""
    return NameColumn(_visible_audit_rows(actor, Project), "object_name")


def department_history(actor: Actor) -> NameColumn:
    return NameColumn(_visible_audit_rows(actor, Department), "object_name")


def project_ids(actor: Actor, name: str) -> set[int]:
    """Return the IDs of visible projects with the given name, including former names in the audit log."""
    return _matching_ids(visible_projects(actor), _visible_audit_rows(actor, Project), name)


def department_ids(actor: Actor, name: str) -> set[int]:
    return _matching_ids(visible_departments(actor), _visible_audit_rows(actor, Department), name)


def _visible_audit_rows(actor: Actor, model: type[Project | Department]) -> QuerySet[Audit]:
    return selectors.audit(actor).filter(object_type=model._meta.model_name)


def _matching_ids(rows: QuerySet[Any], audited: QuerySet[Audit], name: str) -> set[int]:
    earlier = audited.filter(object_name=name).order_by().values_list("object_id", flat=True).distinct()
    return {*rows.filter(name=name).values_list("pk", flat=True), *map(int, earlier)}
