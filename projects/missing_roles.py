"""Explain which role a denied action requires, and which users can grant it."""

from typing import Any

from projects.models import Department, Membership, Project, Quota, Role, Workload, WorkloadArray

MAX_NAMES = 3


def explain_missing_role(action: str, obj: Any) -> str:
    """Return a sentence that names the role that allows the action, and the users who can grant it."""
    owner = _owner(obj)
    if isinstance(owner, Project):
        role = {"submit": Role.MEMBER, "edit": Role.DEPARTMENT_ADMIN, "set_quota": Role.DEPARTMENT_ADMIN}.get(
            action, Role.PROJECT_ADMIN
        )
        if role is not Role.DEPARTMENT_ADMIN:
            return (
                f"You need the role {role} in the project {owner}, which {_administrators(owner)} can grant."
            )
        owner = owner.department
    if isinstance(owner, Department):
        return (
            f"You need the role {Role.DEPARTMENT_ADMIN} in the department {owner}, which its administrators "
            "can grant."
        )
    return f"You need the role {Role.PLATFORM_ADMIN}."


def _owner(obj: Any) -> Any:
    if isinstance(obj, Workload | WorkloadArray):
        return obj.project
    if isinstance(obj, Quota):
        return obj.owner
    if isinstance(obj, Membership):
        return obj.project or obj.department
    return obj


def _administrators(project: Project) -> str:
    """Return the names of users who can grant roles in the project."""
    rows = Membership.objects.filter(project=project, role=Role.PROJECT_ADMIN, user__is_active=True)
    names = list(rows.order_by("user__username").values_list("user__username", flat=True)[:MAX_NAMES])
    if not names:
        return f"an administrator of the department {project.department}"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
