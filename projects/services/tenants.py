"""Create, edit and delete departments and projects."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Model, ProtectedError

from berth.core.errors import Conflict, Forbidden, Invalid, NotFound
from berth.core.idle_rule import normalize_rule
from berth.core.problems import Problem, format_value
from berth.db.writes.references import check_foreign_keys
from pools.engine.volumes import read_volumes
from pools.models import NodePool
from projects.access import Action, may, require
from projects.actor import Actor
from projects.models import Department, Project
from projects.models.tenants import Tenant, owner_columns, owner_ids
from projects.services import announce, audit

T = TypeVar("T", Department, Project)
EDITABLE = ("title", "rank", "reclaim_min_runtime", "preempt_min_runtime")
PROJECT_EDITABLE = (*EDITABLE, "idle_rule")
# Only platform admins may set fields that affect other departments.
# A department must not raise its own rank or delay the reclaim of its borrowed resources.
# A project's idle rule replaces the pools' rules.
DEPARTMENT_RESERVED = ("rank", "reclaim_min_runtime")
PROJECT_RESERVED = ("reclaim_min_runtime", "idle_rule")


def create_department(*, actor: Actor, name: str, **values: Any) -> Department:
    require(actor, Action.ADMINISTER)
    department = Department(name=name, **_editable_values(values, EDITABLE))
    with transaction.atomic():
        _save_tenant(department)
        audit.write_entry(
            actor, "create", department, after=_tenant_values(department), department=department
        )
        announce.tenants_changed(department_id=department.pk)
    return department


def edit_department(*, actor: Actor, department: Department, changes: Mapping[str, Any]) -> Department:
    require(actor, Action.EDIT, department)
    _require_admin_for(actor, department, changes, DEPARTMENT_RESERVED)
    return _edit_tenant(actor, department, changes)


def delete_department(*, actor: Actor, department: Department) -> None:
    require(actor, Action.ADMINISTER)
    _delete_tenant(actor, department, "This department still has projects. Delete or move them first.")


def create_project(*, actor: Actor, department: Department, name: str, **values: Any) -> Project:
    require(actor, Action.EDIT, department)
    values = _editable_values(values, PROJECT_EDITABLE)
    _require_admin_for(actor, Project(), values, PROJECT_RESERVED)
    _require_admin_for_volumes(actor, name)
    project = Project(department=department, name=name, **values)
    with check_foreign_keys(f"The department {department.name}"):
        _save_tenant(project)
        audit.write_entry(actor, "create", project, after=_tenant_values(project), project=project)
        announce.tenants_changed(department_id=department.pk, project_id=project.pk)
    return project


def edit_project(*, actor: Actor, project: Project, changes: Mapping[str, Any]) -> Project:
    require(actor, Action.EDIT, project)
    changes = _editable_values(changes, PROJECT_EDITABLE)
    _require_admin_for(actor, project, changes, PROJECT_RESERVED)
    return _edit_tenant(actor, project, changes)


def delete_project(*, actor: Actor, project: Project) -> None:
    require(actor, Action.EDIT, project)
    _delete_tenant(actor, project, "This project still has workloads. Delete them first.")


def _require_admin_for(actor: Actor, obj: Tenant, values: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    if any(field in values and values[field] != getattr(obj, field) for field in fields):
        require(actor, Action.ADMINISTER)


def _require_admin_for_volumes(actor: Actor, name: str) -> None:
    """Raise Forbidden if an existing volume names the new project, unless the user may define volumes.

    Without this check, the project's admin could read the files of a deleted project with the same name.
    """
    stored = NodePool.objects.exclude(volumes=[]).values_list("volumes", flat=True)
    if not may(actor, Action.ADMINISTER) and any(
        name in volume.projects for volumes in stored for volume in read_volumes(volumes)
    ):
        raise Forbidden(
            f"A pool's volume is open to any project named {name}, so only platform admins may create this "
            "project. Choose another name, or ask a platform admin."
        )


def _edit_tenant(actor: Actor, obj: T, changes: Mapping[str, Any]) -> T:
    with transaction.atomic():
        locked = type(obj).objects.select_for_update().filter(pk=obj.pk).first()
        if locked is None:
            raise NotFound(f"{obj} has been deleted.")
        before = _tenant_values(locked)
        for field, value in _editable_values(changes, _editable_fields(locked)).items():
            setattr(locked, field, value)
        _save_tenant(locked)
        old, new = audit.changed_values(before, _tenant_values(locked))
        if new:
            audit.write_entry(actor, "edit", locked, before=old, after=new, **owner_columns(locked))
            announce.tenants_changed(**owner_ids(locked))
    return locked


def _delete_tenant(actor: Actor, obj: Tenant, message: str) -> None:
    try:
        with transaction.atomic():
            locked = type(obj).objects.select_for_update(of=("self",)).filter(pk=obj.pk).first()
            if locked is None:
                raise NotFound(f"{obj} has been deleted.")
            audit.write_entry(actor, "delete", obj, before=_tenant_values(obj), **owner_columns(obj))
            announce.tenants_changed(**owner_ids(obj))
            obj.delete()
            connection.check_constraints()  # detects rows that were added before the lock was acquired
    except (ProtectedError, IntegrityError):
        raise Conflict(message) from None


def _editable_values(values: Mapping[str, Any], editable: tuple[str, ...]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(editable))
    if unknown:
        raise Invalid(
            [Problem(key, "cannot be set", format_value(values[key]), ", ".join(editable)) for key in unknown]
        )
    if "idle_rule" in values:
        return {**values, "idle_rule": normalize_rule(values["idle_rule"])}
    return dict(values)


def _editable_fields(obj: Tenant) -> tuple[str, ...]:
    return PROJECT_EDITABLE if isinstance(obj, Project) else EDITABLE


def _save_tenant(obj: Model) -> None:
    """Validate and save a department or project.

    Raises Invalid, which lists every invalid field, or Conflict if the name is in use.
    """
    try:
        obj.full_clean()
    except ValidationError as error:
        raise Invalid(
            [
                Problem(
                    "" if field == "__all__" else field,
                    "is already in use" if each.code == "unique" else " ".join(each.messages),
                    format_value(getattr(obj, field, None)),
                )
                for field, errors in sorted(error.error_dict.items())
                for each in errors
            ]
        ) from None
    try:
        with transaction.atomic():
            obj.save()
    except IntegrityError:
        raise Conflict(f"The name {format_value(str(obj))} is already in use. Choose another name.") from None


def _tenant_values(obj: Tenant) -> dict[str, Any]:
    return {"name": obj.name, **{field: getattr(obj, field) for field in _editable_fields(obj)}}
