"""Role-based permissions, shared by all entry points.

Viewers can only read. Members can also submit workloads and control their own. Project admins can control all
workloads of the project and manage its members and secrets. Department admins can also edit the department's
projects and quotas. Platform admins can do everything. Objects that a user cannot see are reported as not
found.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet

from berth.core.errors import Forbidden, MissingScope, NotFound
from pools.models import Node, NodePool
from projects.actor import Actor, GrantedRole
from projects.missing_roles import explain_missing_role
from projects.models import (
    ApiToken,
    Department,
    Membership,
    Pod,
    Project,
    Quota,
    Role,
    Workload,
    WorkloadArray,
)


class Action(StrEnum):
    VIEW = "view"
    SUBMIT = "submit"  # submit a workload to a project
    OPERATE = "operate"  # cancel, suspend, resume or delete a workload
    EDIT = "edit"  # edit a department, project, pool or node
    SET_QUOTA = "set_quota"  # set the quota of a department or project
    GRANT = "grant"  # grant and revoke roles in a department or project
    SET_SECRETS = "set_secrets"  # set and delete the secrets of a project
    ADMINISTER = "administer"  # administer the whole platform: departments, pools and users
    VIEW_CAPACITY = "view_capacity"  # view node pools and nodes, with total and free capacity


REQUIRED_SCOPES = {
    Action.VIEW: "read",
    Action.SUBMIT: "write",
    Action.OPERATE: "write",
    Action.EDIT: "admin",
    Action.SET_QUOTA: "admin",
    Action.GRANT: "admin",
    Action.SET_SECRETS: "admin",
    Action.ADMINISTER: "admin",
    Action.VIEW_CAPACITY: "read",
}
SUBMITTER_ROLES = (Role.MEMBER, Role.PROJECT_ADMIN)


def is_platform_admin(actor: Actor) -> bool:
    user = actor.user
    if user is None:
        return True
    if not user.is_active:
        return False
    return user.is_superuser or any(role.name == Role.PLATFORM_ADMIN for role in actor.roles)


def has_any_role(actor: Actor) -> bool:
    """Return whether the user has any role in a project, in a department or on the platform."""
    return is_platform_admin(actor) or bool(actor.roles)


def visible_pools(actor: Actor) -> QuerySet[NodePool]:
    """Return all node pools, or none if the user has no role."""
    return NodePool.objects.all() if has_any_role(actor) else NodePool.objects.none()


def visible_nodes(actor: Actor) -> QuerySet[Node]:
    """Return the nodes of all visible pools, including nodes that have ended."""
    return Node.objects.all() if has_any_role(actor) else Node.objects.none()


def visible_departments(actor: Actor) -> QuerySet[Department]:
    if is_platform_admin(actor):
        return Department.objects.all()
    projects = Project.objects.filter(pk__in=_project_ids(actor.roles))
    return Department.objects.filter(
        Q(pk__in=_department_ids(actor.roles)) | Q(pk__in=projects.values("department"))
    )


def visible_projects(actor: Actor) -> QuerySet[Project]:
    if is_platform_admin(actor):
        return Project.objects.all()
    return Project.objects.filter(
        Q(pk__in=_project_ids(actor.roles)) | Q(department__in=_department_ids(actor.roles))
    )


def _project_ids(roles: Iterable[GrantedRole]) -> set[int]:
    return {role.project_id for role in roles if role.project_id is not None}


def _department_ids(roles: Iterable[GrantedRole]) -> set[int]:
    return {role.department_id for role in roles if role.department_id is not None}


def visible_projects_by_user(
    users: Collection[User], projects: Collection[Project]
) -> Mapping[int, frozenset[int]]:
    """Map each user ID to the IDs of the projects that the user can see, in one query."""
    active = {user.pk: user for user in users if user.is_active}
    if not active:
        return {}
    roles: dict[int, list[Membership]] = {pk: [] for pk in active}
    for membership in Membership.objects.filter(user__in=active):
        roles[membership.user_id].append(membership)
    return {
        pk: frozenset(
            project.pk
            for project in projects
            if user.is_superuser or any(_grants_view(membership, project) for membership in roles[pk])
        )
        for pk, user in active.items()
    }


def _grants_view(membership: Membership, project: Project) -> bool:
    if membership.role == Role.PLATFORM_ADMIN or membership.project_id == project.pk:
        return True
    return membership.department_id == project.department_id


def fully_visible_departments(actor: Actor) -> QuerySet[Department]:
    """Return the departments in which the user can see every project."""
    if is_platform_admin(actor):
        return Department.objects.all()
    return Department.objects.filter(pk__in=_department_ids(actor.roles))


def administered_departments(actor: Actor) -> QuerySet[Department]:
    if is_platform_admin(actor):
        return Department.objects.all()
    roles = [role for role in actor.roles if role.name == Role.DEPARTMENT_ADMIN]
    return Department.objects.filter(pk__in=_department_ids(roles))


def administered_projects(actor: Actor) -> QuerySet[Project]:
    """Return the projects that the user administers through a project, department or platform role."""
    if is_platform_admin(actor):
        return Project.objects.all()
    roles = [role for role in actor.roles if role.name == Role.PROJECT_ADMIN]
    return Project.objects.filter(
        Q(pk__in=_project_ids(roles)) | Q(department__in=administered_departments(actor))
    )


def has_admin_role(actor: Actor) -> bool:
    """Return whether the user administers any project, any department, or the platform."""
    admin = (Role.PROJECT_ADMIN, Role.DEPARTMENT_ADMIN)
    return is_platform_admin(actor) or any(role.name in admin for role in actor.roles)


def may_submit_anywhere(actor: Actor) -> bool:
    """Return whether the user may submit workloads to at least one project."""
    if REQUIRED_SCOPES[Action.SUBMIT] not in actor.scopes:
        return False
    submitter = (*SUBMITTER_ROLES, Role.DEPARTMENT_ADMIN)
    return is_platform_admin(actor) or any(role.name in submitter for role in actor.roles)


def may(actor: Actor, action: Action, obj: Any = None) -> bool:
    if REQUIRED_SCOPES[action] not in actor.scopes:
        return False
    if is_platform_admin(actor):
        return True
    if actor.user is None or not actor.user.is_active:
        return False
    return _is_allowed(actor, action, obj)


def require(actor: Actor, action: Action, obj: Any = None) -> None:
    """Raise NotFound if the object is not visible, or Forbidden if the action is denied."""
    if obj is not None and not can_see(actor, obj):
        raise NotFound(
            f"There is no {_verbose_name(obj)} with that name or ID. Check the spelling, or ask an admin for "
            "a role."
        )
    if not may(actor, action, obj):
        missing = REQUIRED_SCOPES[action]
        if missing not in actor.scopes:
            raise MissingScope(missing)
        rejection = f"Your role does not allow you to {_describe_action(action)}."
        raise Forbidden(f"{rejection} {explain_missing_role(action, obj)}")


def _is_allowed(actor: Actor, action: Action, obj: Any) -> bool:
    if action is Action.VIEW:
        return obj is None or can_see(actor, obj)
    if action is Action.VIEW_CAPACITY:
        return has_any_role(actor)
    if action is Action.ADMINISTER or isinstance(obj, NodePool | Node):
        return False
    if isinstance(obj, ApiToken):
        return obj.user_id == (actor.user.pk if actor.user else None)
    if isinstance(obj, Workload | WorkloadArray):
        return _may_operate(actor, obj)
    if isinstance(obj, Quota):
        obj = obj.owner
    if isinstance(obj, Membership):
        obj = obj.project or obj.department
    if isinstance(obj, Department):
        return action is not Action.SUBMIT and _administers_department(actor, obj.pk)
    if isinstance(obj, Project):
        return _is_allowed_on_project(actor, action, obj)
    return False


def _is_allowed_on_project(actor: Actor, action: Action, project: Project) -> bool:
    if _administers_department(actor, project.department_id):
        return True
    roles = _project_roles(actor, project)
    if action is Action.SUBMIT:
        return any(role in roles for role in SUBMITTER_ROLES)
    allowed = (Action.GRANT, Action.OPERATE, Action.SET_SECRETS)
    return action in allowed and Role.PROJECT_ADMIN in roles


def _may_operate(actor: Actor, workload: Workload | WorkloadArray) -> bool:
    if _is_allowed_on_project(actor, Action.OPERATE, workload.project):
        return True
    is_owner = actor.user is not None and workload.submitted_by_id == actor.user.pk
    return is_owner and Role.MEMBER in _project_roles(actor, workload.project)


def _project_roles(actor: Actor, project: Project) -> set[str]:
    return {role.name for role in actor.roles if role.project_id == project.pk}


def _administers_department(actor: Actor, department_id: int) -> bool:
    return GrantedRole(Role.DEPARTMENT_ADMIN, department_id=department_id) in actor.roles


def can_see(actor: Actor, obj: Any) -> bool:
    if is_platform_admin(actor):
        return True
    if isinstance(obj, Department):
        return visible_departments(actor).filter(pk=obj.pk).exists()
    if isinstance(obj, Project):
        return any(role.covers(obj) for role in actor.roles)
    if isinstance(obj, Workload | WorkloadArray):
        return can_see(actor, obj.project)
    if isinstance(obj, Pod):
        return can_see(actor, obj.workload.project)
    if isinstance(obj, Quota | Membership):
        return _can_see_through_owner(actor, obj)
    if isinstance(obj, ApiToken):
        return actor.user is not None and obj.user_id == actor.user.pk
    return isinstance(obj, NodePool | Node) and has_any_role(actor)


def _can_see_through_owner(actor: Actor, obj: Quota | Membership) -> bool:
    if obj.project is not None:
        return can_see(actor, obj.project)
    return obj.department_id is not None and obj.department_id in _department_ids(actor.roles)


def _verbose_name(obj: Model) -> str:
    return str(obj._meta.verbose_name)


def _describe_action(action: Action) -> str:
    return {
        Action.VIEW: "view this object",
        Action.SUBMIT: "submit workloads to this project",
        Action.OPERATE: "control this workload",
        Action.EDIT: "change this object",
        Action.SET_QUOTA: "set this quota",
        Action.GRANT: "manage members here",
        Action.SET_SECRETS: "set the secrets of this project",
        Action.ADMINISTER: "administer the platform",
        Action.VIEW_CAPACITY: "view node pools and nodes",
    }[action]
