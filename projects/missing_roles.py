"""Explain which role an action requires, and name the users who have it or can grant it."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from projects.models import Department, Membership, Project, Quota, Role, Workload, WorkloadArray

MAX_NAMES = 3


def explain_missing_role(action: str, obj: Any) -> str:
    """Return a sentence that names the required role and the users who can grant it."""
    owner = _owner(obj)
    if isinstance(owner, Project):
        role = {"submit": Role.MEMBER, "edit": Role.DEPARTMENT_ADMIN, "set_quota": Role.DEPARTMENT_ADMIN}.get(
            action, Role.PROJECT_ADMIN
        )
        if role is not Role.DEPARTMENT_ADMIN:
            return (
                f"You need the {role_title(role)} role in the project {owner}. Ask "
                f"{_admin_names(owner)} to grant it."
            )
        owner = owner.department
    if isinstance(owner, Department):
        return (
            f"You need the {role_title(Role.DEPARTMENT_ADMIN)} role in the department {owner}. Ask one of "
            "its admins to grant it."
        )
    return explain_missing_platform_role()


def explain_missing_platform_role() -> str:
    """Return a sentence that names the required platform role and the users who can grant it."""
    role = role_title(Role.PLATFORM_ADMIN)
    return f"You need the {role} role. Ask {platform_admin_names() or f'another {role}'} to grant it."


def platform_admin_names() -> str:
    """Return the names of up to three platform admins as text, such as "alice or bob", or "" if there are
    none.
    """
    return _join_usernames(
        User.objects.filter(Q(is_superuser=True) | Q(memberships__role=Role.PLATFORM_ADMIN))
    )


def department_admin_names(department: Department) -> str:
    """Return up to three admins of the department as text, such as "alice or bob", or "" if it has none."""
    return _join_usernames(
        User.objects.filter(memberships__department=department, memberships__role=Role.DEPARTMENT_ADMIN)
    )


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


def _admin_names(project: Project) -> str:
    """Return the names of the project's admins or, if it has none, "an admin of the department NAME"."""
    admins = User.objects.filter(memberships__project=project, memberships__role=Role.PROJECT_ADMIN)
    return _join_usernames(admins) or f"an admin of the department {project.department}"


def _join_usernames(users: QuerySet[User]) -> str:
    active = users.filter(is_active=True).distinct().order_by("username")
    *others, last = [*active.values_list("username", flat=True)[:MAX_NAMES]] or [""]
    return f"{', '.join(others)} or {last}" if others else last
