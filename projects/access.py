"""Permissions of roles, for every entry point.

A viewer reads. A member submits workloads and acts on their own. A project admin acts on all workloads and
members of the project. A department admin also acts on the projects and quotas of the department. A platform
admin acts on everything. An object that the user cannot see is reported as not found.
"""

from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet

from berth.core.errors import Forbidden, NotFound
from pools.models import Node, NodePool
from projects.acting import Acting
from projects.models import ApiToken, Department, Membership, Pod, Project, Quota, Role, Workload


class Action(StrEnum):
    VIEW = "view"
    SUBMIT = "submit"  # action on a project
    OPERATE = "operate"  # cancel, suspend, resume, delete a workload
    EDIT = "edit"  # edit a department, project, pool or node
    SET_QUOTA = "set_quota"  # set a quota of a department or project
    GRANT = "grant"  # change members of a department or project
    ADMINISTER = "administer"  # administer the platform: departments, pools and users
    VIEW_CAPACITY = "view_capacity"  # node pools and nodes, with total and free capacity


SCOPE_NEEDED = {
    Action.VIEW: "read",
    Action.SUBMIT: "write",
    Action.OPERATE: "write",
    Action.EDIT: "admin",
    Action.SET_QUOTA: "admin",
    Action.GRANT: "admin",
    Action.ADMINISTER: "admin",
    Action.VIEW_CAPACITY: "read",
}
SUBMITTERS = (Role.MEMBER, Role.PROJECT_ADMIN)


def is_platform_admin(acting: Acting) -> bool:
    user = acting.user
    if user is None:
        return True
    if not user.is_active:
        return False
    if "platform_admin" not in acting.role_cache:
        memberships = Membership.objects.filter(user=user, role=Role.PLATFORM_ADMIN)
        acting.role_cache["platform_admin"] = user.is_superuser or memberships.exists()
    return acting.role_cache["platform_admin"]


def has_role(acting: Acting) -> bool:
    """Return True if the user has a role in any project, any department or the platform."""
    if is_platform_admin(acting):
        return True
    if "role" not in acting.role_cache:
        acting.role_cache["role"] = Membership.objects.filter(user=_active(acting)).exists()
    return acting.role_cache["role"]


def visible_pools(acting: Acting) -> QuerySet[NodePool]:
    """Return all node pools for a user with a role, none for an account without one."""
    return NodePool.objects.all() if has_role(acting) else NodePool.objects.none()


def visible_nodes(acting: Acting) -> QuerySet[Node]:
    """Return the nodes of visible pools, including ended nodes."""
    return Node.objects.all() if has_role(acting) else Node.objects.none()


def visible_departments(acting: Acting) -> QuerySet[Department]:
    if is_platform_admin(acting):
        return Department.objects.all()
    memberships = Membership.objects.filter(user=_active(acting))
    return Department.objects.filter(
        Q(pk__in=memberships.values("department")) | Q(pk__in=memberships.values("project__department"))
    )


def visible_projects(acting: Acting) -> QuerySet[Project]:
    if is_platform_admin(acting):
        return Project.objects.all()
    memberships = Membership.objects.filter(user=_active(acting))
    return Project.objects.filter(
        Q(pk__in=memberships.values("project")) | Q(department__in=memberships.values("department"))
    )


def whole_departments(acting: Acting) -> QuerySet[Department]:
    """Return the departments that the user sees in full, not only some of their projects."""
    if is_platform_admin(acting):
        return Department.objects.all()
    return Department.objects.filter(
        pk__in=Membership.objects.filter(user=_active(acting), department__isnull=False).values("department")
    )


def administered_departments(acting: Acting) -> QuerySet[Department]:
    if is_platform_admin(acting):
        return Department.objects.all()
    memberships = Membership.objects.filter(user=_active(acting), role=Role.DEPARTMENT_ADMIN)
    return Department.objects.filter(pk__in=memberships.values("department"))


def administered_projects(acting: Acting) -> QuerySet[Project]:
    """Return the projects administered through a role in the project, its department or the platform."""
    if is_platform_admin(acting):
        return Project.objects.all()
    memberships = Membership.objects.filter(user=_active(acting), role=Role.PROJECT_ADMIN)
    return Project.objects.filter(
        Q(pk__in=memberships.values("project")) | Q(department__in=administered_departments(acting))
    )


def administers_any(acting: Acting) -> bool:
    """Return True if the user administers any project, any department or the platform."""
    if is_platform_admin(acting):
        return True
    memberships = Membership.objects.filter(user=_active(acting))
    return memberships.filter(role__in=(Role.PROJECT_ADMIN, Role.DEPARTMENT_ADMIN)).exists()


def may(acting: Acting, action: Action, obj: Any = None) -> bool:
    if SCOPE_NEEDED[action] not in acting.scopes:
        return False
    if acting.is_system or is_platform_admin(acting):
        return True
    if acting.user is None or not acting.user.is_active:
        return False
    return _is_allowed(acting, action, obj)


def require(acting: Acting, action: Action, obj: Any = None) -> None:
    """Raise NotFound if the object is not visible, or Forbidden if only the action is not allowed."""
    if obj is not None and not _can_see(acting, obj):
        raise NotFound(f"There is no {_kind(obj)} with that name or id.")
    if not may(acting, action, obj):
        missing = SCOPE_NEEDED[action]
        if missing not in acting.scopes:
            raise Forbidden(f"This token lacks the scope {missing}.", allowed=[missing])
        raise Forbidden(f"Your role does not allow you to {_describe(action)}.")


def _active(acting: Acting) -> User | None:
    return acting.user if acting.user is not None and acting.user.is_active else None


def _is_allowed(acting: Acting, action: Action, obj: Any) -> bool:
    if action is Action.VIEW:
        return obj is None or _can_see(acting, obj)
    if action is Action.VIEW_CAPACITY:
        return has_role(acting)
    if action is Action.ADMINISTER or isinstance(obj, NodePool | Node):
        return False
    if isinstance(obj, ApiToken):
        return obj.user_id == (acting.user.pk if acting.user else None)
    if isinstance(obj, Workload):
        return _may_operate(acting, obj)
    if isinstance(obj, Quota):
        obj = obj.owner
    if isinstance(obj, Membership):
        obj = obj.project or obj.department
    if isinstance(obj, Department):
        return action is not Action.SUBMIT and _administers_department(acting, obj.pk)
    if isinstance(obj, Project):
        return _is_allowed_on_project(acting, action, obj)
    return False


def _is_allowed_on_project(acting: Acting, action: Action, project: Project) -> bool:
    if _administers_department(acting, project.department_id):
        return True
    roles = _roles_in(acting, project)
    if action is Action.SUBMIT:
        return any(role in roles for role in SUBMITTERS)
    return action in (Action.GRANT, Action.OPERATE) and Role.PROJECT_ADMIN in roles


def _may_operate(acting: Acting, workload: Workload) -> bool:
    if _is_allowed_on_project(acting, Action.OPERATE, workload.project):
        return True
    is_owner = acting.user is not None and workload.submitted_by_id == acting.user.pk
    return is_owner and Role.MEMBER in _roles_in(acting, workload.project)


def _roles_in(acting: Acting, project: Project) -> set[str]:
    return set(
        Membership.objects.filter(user=_active(acting), project=project).values_list("role", flat=True)
    )


def _administers_department(acting: Acting, department_id: int) -> bool:
    return Membership.objects.filter(
        user=_active(acting), department=department_id, role=Role.DEPARTMENT_ADMIN
    ).exists()


def _can_see(acting: Acting, obj: Any) -> bool:
    if acting.is_system or is_platform_admin(acting):
        return True
    if isinstance(obj, Department):
        return visible_departments(acting).filter(pk=obj.pk).exists()
    if isinstance(obj, Project):
        return visible_projects(acting).filter(pk=obj.pk).exists()
    if isinstance(obj, Workload):
        return visible_projects(acting).filter(pk=obj.project_id).exists()
    if isinstance(obj, Pod):
        return visible_projects(acting).filter(pk=obj.workload.project_id).exists()
    if isinstance(obj, Quota | Membership):
        return _can_see_owned(acting, obj)
    if isinstance(obj, ApiToken):
        return acting.user is not None and obj.user_id == acting.user.pk
    return isinstance(obj, NodePool | Node) and has_role(acting)


def _can_see_owned(acting: Acting, obj: Quota | Membership) -> bool:
    if obj.project is not None:
        return _can_see(acting, obj.project)
    return obj.department is not None and whole_departments(acting).filter(pk=obj.department.pk).exists()


def _kind(obj: Model) -> str:
    return str(obj._meta.verbose_name)


def _describe(action: Action) -> str:
    return {
        Action.VIEW: "see this",
        Action.SUBMIT: "submit workloads here",
        Action.OPERATE: "control this workload",
        Action.EDIT: "change this",
        Action.SET_QUOTA: "set this quota",
        Action.GRANT: "change members here",
        Action.ADMINISTER: "administer the platform",
        Action.VIEW_CAPACITY: "see node pools and nodes",
    }[action]
