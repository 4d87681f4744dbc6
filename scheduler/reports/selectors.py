"""Queries of scheduler decisions, restricted to what a user may see."""

from uuid import UUID

from django.db.models import Q, QuerySet

from projects.access import is_platform_admin, visible_projects, whole_departments
from projects.acting import Acting
from scheduler.models import Cycle, Eviction, QueueStanding


def evictions(acting: Acting) -> QuerySet[Eviction]:
    """Return evictions whose victim or preemptor is in a project that the user may see."""
    rows = Eviction.objects.order_by("-id")
    if is_platform_admin(acting):
        return rows
    mine = visible_projects(acting).values("pk")
    return rows.filter(Q(project_id__in=mine) | Q(preemptor_project_id__in=mine))


def of_workload(acting: Acting, text: str) -> Q:
    """Filter by the victim's id or name, if the user may see the victim's project."""
    return _if_visible(acting, "project_id", _by_id_or_name(text, "workload_id", "workload_name"))


def for_workload(acting: Acting, text: str) -> Q:
    """Filter by the preemptor's id, name or project name. Both sides may see the project name."""
    visible = _if_visible(
        acting, "preemptor_project_id", _by_id_or_name(text, "preemptor_id", "preemptor_name")
    )
    return visible | Q(preemptor_project_name=text)


def cycles(acting: Acting) -> QuerySet[Cycle]:
    """Return cycles for platform admins only, because they show the plans of all tenants."""
    return Cycle.objects.order_by("-id") if is_platform_admin(acting) else Cycle.objects.none()


def standings(acting: Acting) -> QuerySet[QueueStanding]:
    rows = QueueStanding.objects.select_related("pool", "department", "project__department")
    if is_platform_admin(acting):
        return rows
    return rows.filter(Q(project__in=visible_projects(acting)) | Q(department__in=whole_departments(acting)))


def _by_id_or_name(text: str, of_id: str, name: str) -> Q:
    try:
        return Q(**{of_id: UUID(text)})
    except ValueError:
        return Q(**{name: text})


def _if_visible(acting: Acting, column: str, condition: Q) -> Q:
    if is_platform_admin(acting):
        return condition
    return condition & Q(**{f"{column}__in": visible_projects(acting).values("pk")})
