"""Explain which role a denied action requires, and which users can grant it."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q

from projects.models import Department, Membership, Project, Quota, Role, Workload, WorkloadArray

MAX_NAMES = 3


def explain_missing_role(action: str, obj: Any) -> str:
    """Return a sentence that names the required role, and the users who can grant it."""
    owner = _owner(obj)
    if isinstance(owner, Project):
        role = {"submit": Role.MEMBER, "edit": Role.DEPARTMENT_ADMIN, "set_quota": Role.DEPARTMENT_ADMIN}.get(
            action, Role.PROJECT_ADMIN
        )
        if role is not Role.DEPARTMENT_ADMIN:
            return (
                f"You need the role {role_title(role)} in the project {owner}, which "
                f"{_names_of_administrators(owner)} can grant."
            )
        owner = owner.department
    if isinstance(owner, Department):
        return (
            f"You need the role {role_title(Role.DEPARTMENT_ADMIN)} in the department {owner}, which its "
            "administrators can grant."
        )
    return explain_missing_platform_role()


def explain_missing_platform_role() -> str:
    """Return a sentence that names the required platform role, and the users who can grant it."""
    role = role_title(Role.PLATFORM_ADMIN)
    admins = User.objects.filter(
        Q(is_superuser=True) | Q(memberships__role=Role.PLATFORM_ADMIN), is_active=True
    ).distinct()
    names = list(admins.order_by("username").values_list("username", flat=True)[:MAX_NAMES])
    return f"You need the role {role}, which {_join_names(names) or f'another {role}'} can grant."


def role_title(role: str) -> str:
    """Return a role's display name, such as "platform admin"."""
    return role.replace("_", " ")


def _owner(obj: Any) -> Any:
    if isinstance(obj, Workload | WorkloadArray):
        return obj.project
    if isinstance(obj, Quota):
        return obj.owner
    if isinstance(obj, Membership):
        return obj.project or obj.department
    return obj


def _names_of_administrators(project: Project) -> str:
    """Return the names of the users who can grant roles in the project."""
    rows = Membership.objects.filter(project=project, role=Role.PROJECT_ADMIN, user__is_active=True)
    names = list(rows.order_by("user__username").values_list("user__username", flat=True)[:MAX_NAMES])
    return _join_names(names) or f"an administrator of the department {project.department}"


def _join_names(names: list[str]) -> str:
    *others, last = names or [""]
    return f"{', '.join(others)} or {last}" if others else last
