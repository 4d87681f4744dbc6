"""Queries of scheduler decisions, restricted to what a person may see."""

from uuid import UUID

from django.db.models import Q, QuerySet

from projects.access import is_platform_admin, visible_projects, whole_departments
from projects.acting import Acting
from scheduler.models import Cycle, Eviction, QueueStanding


def evictions(acting: Acting) -> QuerySet[Eviction]:
    """Those in which a visible project gave way, or was the one for whom."""
    rows = Eviction.objects.order_by("-id")
    if is_platform_admin(acting):
        return rows
    mine = visible_projects(acting).values("pk")
    return rows.filter(Q(project_id__in=mine) | Q(preemptor_project_id__in=mine))


def of_workload(acting: Acting, text: str) -> Q:
    """Of who gave way, by id or name; of strangers' work no name can be guessed."""
    return _seen(acting, "project_id", _named(text, "workload_id", "workload_name"))


def for_workload(acting: Acting, text: str) -> Q:
    """By the id or name of whom it was for, or the name of its project, which both sides are told."""
    found = _seen(acting, "preemptor_project_id", _named(text, "preemptor_id", "preemptor_name"))
    return found | Q(preemptor_project_name=text)


def cycles(acting: Acting) -> QuerySet[Cycle]:
    """A cycle shows every tenant's plans: for platform admins only."""
    return Cycle.objects.order_by("-id") if is_platform_admin(acting) else Cycle.objects.none()


def standings(acting: Acting) -> QuerySet[QueueStanding]:
    rows = QueueStanding.objects.select_related("pool", "department", "project__department")
    if is_platform_admin(acting):
        return rows
    return rows.filter(Q(project__in=visible_projects(acting)) | Q(department__in=whole_departments(acting)))


def _named(text: str, of_id: str, name: str) -> Q:
    try:
        return Q(**{of_id: UUID(text)})
    except ValueError:
        return Q(**{name: text})


def _seen(acting: Acting, column: str, found: Q) -> Q:
    if is_platform_admin(acting):
        return found
    return found & Q(**{f"{column}__in": visible_projects(acting).values("pk")})
