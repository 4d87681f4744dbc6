"""Tenant-scoped queries for everything that a user may see."""

from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from berth.core.errors import NotFound
from projects.access import (
    administered_departments,
    administered_projects,
    is_platform_admin,
    visible_departments,
    visible_projects,
    whole_departments,
)
from projects.acting import Acting
from projects.models import (
    ApiToken,
    Audit,
    Budget,
    Department,
    Event,
    Membership,
    Pod,
    Project,
    Quota,
    QuotaChange,
    RoleNode,
    Subscription,
    Template,
    Workload,
)


def departments(acting: Acting) -> QuerySet[Department]:
    return visible_departments(acting).order_by("name")


def projects(acting: Acting) -> QuerySet[Project]:
    return visible_projects(acting).select_related("department").order_by("department__name", "name")


def quotas(acting: Acting) -> QuerySet[Quota]:
    """Return the quotas of visible projects, and of departments that the user sees in full."""
    rows = Quota.objects.select_related("department", "project__department", "pool")
    if is_platform_admin(acting):
        return rows
    return rows.filter(Q(project__in=visible_projects(acting)) | Q(department__in=whole_departments(acting)))


def budgets(acting: Acting) -> QuerySet[Budget]:
    """Return the budgets of visible projects, and of departments that the user sees in full."""
    rows = Budget.objects.select_related("department", "project__department")
    if is_platform_admin(acting):
        return rows
    return rows.filter(Q(project__in=visible_projects(acting)) | Q(department__in=whole_departments(acting)))


def members(acting: Acting) -> QuerySet[Membership]:
    rows = Membership.objects.select_related("user", "department", "project__department")
    if is_platform_admin(acting):
        return rows
    return rows.filter(Q(project__in=visible_projects(acting)) | Q(department__in=whole_departments(acting)))


def workloads(acting: Acting) -> QuerySet[Workload]:
    rows = Workload.objects.select_related("project__department", "submitted_by", "pool")
    if is_platform_admin(acting):
        return rows
    return rows.filter(project__in=visible_projects(acting))


def roles(acting: Acting) -> QuerySet[RoleNode]:
    return RoleNode.objects.filter(workload__in=workloads(acting))


def pods(acting: Acting) -> QuerySet[Pod]:
    rows = Pod.objects.select_related("workload__project__department", "node__pool")
    if is_platform_admin(acting):
        return rows
    return rows.filter(workload__project__in=visible_projects(acting))


def events(acting: Acting) -> QuerySet[Event]:
    rows = Event.objects.order_by("-id")
    if is_platform_admin(acting):
        return rows
    return rows.filter(project_id__in=visible_projects(acting).values("pk"))


def audit(acting: Acting) -> QuerySet[Audit]:
    """Return changes in visible projects and departments. Platform changes are only for platform admins."""
    rows = Audit.objects.order_by("-id")
    if is_platform_admin(acting):
        return rows
    return rows.filter(
        Q(project_id__in=visible_projects(acting).values("pk"))
        | Q(department_id__in=whole_departments(acting).values("pk"))
    )


def quota_changes(acting: Acting) -> QuerySet[QuotaChange]:
    """Return the changes that include a visible quota."""
    rows = QuotaChange.objects.order_by("-id")
    if is_platform_admin(acting):
        return rows
    return rows.filter(pk__in=audit(acting).filter(change_id__isnull=False).values("change_id"))


def find_quota_change(acting: Acting, change_id: int) -> QuotaChange:
    change = quota_changes(acting).filter(pk=change_id).first()
    if change is None:
        raise NotFound("There is no quota change with that id.")
    return change


class Scope:
    """Ids of the projects and departments that a user may see, queried once for many rows."""

    def __init__(self, acting: Acting) -> None:
        self._all = is_platform_admin(acting)
        self._projects, self._departments = set[int](), set[int]()
        if not self._all:
            self._projects = set(visible_projects(acting).values_list("pk", flat=True))
            self._departments = set(whole_departments(acting).values_list("pk", flat=True))

    def holds(self, project_id: int | None, department_id: int | None) -> bool:
        """Return True if objects of this project, or of this department without a project, are visible."""
        if self._all:
            return True
        return project_id in self._projects if project_id is not None else department_id in self._departments


def subscriptions(acting: Acting) -> QuerySet[Subscription]:
    """Return the user's own subscriptions and those of scopes that the user administers."""
    rows = Subscription.objects.select_related("user", "project", "department").order_by("pk")
    own = Q(user=acting.user) if acting.user else Q(pk=None)
    if is_platform_admin(acting):
        return rows.filter(own | Q(user__isnull=True))
    mine = Q(project__in=administered_projects(acting))
    return rows.filter(own | mine | Q(department__in=administered_departments(acting)))


def templates(acting: Acting) -> QuerySet[Template]:
    """Return the templates of visible projects."""
    rows = Template.objects.select_related("project__department", "made_by").order_by("project__name", "name")
    if is_platform_admin(acting):
        return rows
    return rows.filter(project__in=visible_projects(acting))


def tokens(acting: Acting) -> QuerySet[ApiToken]:
    """Return the acting user's tokens. Other users' tokens are never visible."""
    return ApiToken.objects.filter(user=acting.user) if acting.user else ApiToken.objects.none()


def users(acting: Acting) -> QuerySet[User]:
    """Return users with a role in scopes that the acting user administers; all users for platform admins."""
    rows = User.objects.order_by("username")
    if is_platform_admin(acting):
        return rows
    administered = Membership.objects.filter(
        Q(project__in=administered_projects(acting)) | Q(department__in=administered_departments(acting))
    )
    return rows.filter(pk__in=administered.values("user"))


def find_grantee(username: str) -> User | None:
    """Return the user with exactly this name. Admins who grant a role cannot search all users."""
    return User.objects.filter(username=username).first()


def find_department(acting: Acting, name: str) -> Department:
    department = departments(acting).filter(name=name).first()
    if department is None:
        raise NotFound(f"No department is named {name[:80]!r}.")
    return department


def find_project(acting: Acting, name: str) -> Project:
    project = projects(acting).filter(name=name).first()
    if project is None:
        raise NotFound(f"No project is named {name[:80]!r}.")
    return project


def find_workload(acting: Acting, workload_id: UUID | str) -> Workload:
    workload = workloads(acting).filter(pk=workload_id).first()
    if workload is None:
        raise NotFound("There is no workload with that id.")
    return workload
