"""Queries for scheduler decisions, restricted to what a user may see."""

from uuid import UUID

from django.db.models import Q, QuerySet

from projects.access import is_platform_admin, visible_projects
from projects.actor import Actor
from projects.selectors import restrict_to_visible_owners
from scheduler.models import Cycle, Eviction, QueueStatus


def evictions(actor: Actor) -> QuerySet[Eviction]:
    """Return evictions whose victim or preemptor belongs to a project that the user may see."""
    rows = Eviction.objects.order_by("-id")
    if is_platform_admin(actor):
        return rows
    mine = visible_projects(actor).values("pk")
    return rows.filter(Q(project_id__in=mine) | Q(preemptor_project_id__in=mine))


def victim_filter(actor: Actor, text: str) -> Q:
    """Return a filter by the victim's ID or name, restricted to projects that the user may see."""
    return _restrict_to_visible(actor, "project_id", _id_or_name_filter(text, "workload_id", "workload_name"))


def preemptor_filter(actor: Actor, text: str) -> Q:
    """Return a filter by the preemptor's ID, name or project.

    The project name matches even if the preemptor is hidden.
    """
    visible = _restrict_to_visible(
        actor, "preemptor_project_id", _id_or_name_filter(text, "preemptor_id", "preemptor_name")
    )
    return visible | Q(preemptor_project_name=text)


def workload_search_filter(actor: Actor, text: str) -> Q:
    """Return a filter for evictions with a matching victim or preemptor that the user may see.

    `text` is an ID or part of a name.
    """
    return _restrict_to_visible(
        actor, "project_id", _id_or_name_filter(text, "workload_id", "workload_name__icontains")
    ) | _restrict_to_visible(
        actor, "preemptor_project_id", _id_or_name_filter(text, "preemptor_id", "preemptor_name__icontains")
    )


def cycles(actor: Actor) -> QuerySet[Cycle]:
    """Return all cycles for platform admins, and no cycles for other users."""
    return Cycle.objects.order_by("-id") if is_platform_admin(actor) else Cycle.objects.none()


def queue_statuses(actor: Actor) -> QuerySet[QueueStatus]:
    rows = QueueStatus.objects.select_related("pool", "department", "project__department")
    return restrict_to_visible_owners(actor, rows)


def _id_or_name_filter(text: str, id_column: str, name: str) -> Q:
    try:
        return Q(**{id_column: UUID(text)})
    except ValueError:
        return Q(**{name: text})


def _restrict_to_visible(actor: Actor, column: str, condition: Q) -> Q:
    if is_platform_admin(actor):
        return condition
    return condition & Q(**{f"{column}__in": visible_projects(actor).values("pk")})
