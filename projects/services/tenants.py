"""Create, edit and delete departments and projects."""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Model, ProtectedError

from berth.core.errors import Conflict, Invalid, NotFound
from berth.core.problems import Problem, shown
from berth.db.references import with_living_references
from projects.access import Action, require
from projects.acting import Acting
from projects.models import Department, Project
from projects.services import announce, audit

T = TypeVar("T", Department, Project)
EDITABLE = ("title", "rank", "reclaim_min_runtime", "preempt_min_runtime")
# Only platform admins set fields that decide between departments: a department must not raise its own rank or
# prolong the time before its borrowed resources may be reclaimed.
DEPARTMENT_RESERVED, PROJECT_RESERVED = ("rank", "reclaim_min_runtime"), ("reclaim_min_runtime",)


def create_department(*, acting: Acting, name: str, **values: Any) -> Department:
    require(acting, Action.ADMINISTER)
    department = Department(name=name, **_editable(values))
    with transaction.atomic():
        _save(department)
        audit.write_down(acting, "create", department, after=_values(department), department=department)
        announce.tenants_changed(department_id=department.pk)
    return department


def edit_department(*, acting: Acting, department: Department, changes: Mapping[str, Any]) -> Department:
    require(acting, Action.EDIT, department)
    _require_admin_for(acting, department, changes, DEPARTMENT_RESERVED)
    return _edit(acting, department, changes)


def delete_department(*, acting: Acting, department: Department) -> None:
    require(acting, Action.ADMINISTER)
    _delete(acting, department, "This department still has projects. Delete or move them first.")


def create_project(*, acting: Acting, department: Department, name: str, **values: Any) -> Project:
    require(acting, Action.EDIT, department)
    _require_admin_for(acting, Project(), values, PROJECT_RESERVED)
    project = Project(department=department, name=name, **_editable(values))
    with with_living_references(f"The department {department.name}"):
        _save(project)
        audit.write_down(acting, "create", project, after=_values(project), project=project)
        announce.tenants_changed(department_id=department.pk, project_id=project.pk)
    return project


def edit_project(*, acting: Acting, project: Project, changes: Mapping[str, Any]) -> Project:
    require(acting, Action.EDIT, project)
    _require_admin_for(acting, project, changes, PROJECT_RESERVED)
    return _edit(acting, project, changes)


def delete_project(*, acting: Acting, project: Project) -> None:
    require(acting, Action.EDIT, project)
    _delete(acting, project, "This project still has workloads. Delete them first.")


def _require_admin_for(
    acting: Acting, obj: Department | Project, values: Mapping[str, Any], fields: tuple[str, ...]
) -> None:
    if any(field in values and values[field] != getattr(obj, field) for field in fields):
        require(acting, Action.ADMINISTER)


def _edit(acting: Acting, obj: T, changes: Mapping[str, Any]) -> T:
    with transaction.atomic():
        locked = type(obj).objects.select_for_update().filter(pk=obj.pk).first()
        if locked is None:
            raise NotFound(f"{obj} was deleted in the meantime.")
        before = _values(locked)
        for field, value in _editable(changes).items():
            setattr(locked, field, value)
        _save(locked)
        old, new = audit.differences(before, _values(locked))
        if new:
            audit.write_down(acting, "edit", locked, before=old, after=new, **_scope(locked))
            announce.tenants_changed(**_ids(locked))
    return locked


def _delete(acting: Acting, obj: Department | Project, message: str) -> None:
    try:
        with transaction.atomic():
            locked = type(obj).objects.select_for_update(of=("self",)).filter(pk=obj.pk).first()
            if locked is None:
                raise NotFound(f"{obj} was already deleted.")
            audit.write_down(acting, "delete", obj, before=_values(obj), **_scope(obj))
            announce.tenants_changed(**_ids(obj))
            obj.delete()
            connection.check_constraints()  # detects rows added between the check and the lock
    except (ProtectedError, IntegrityError):
        raise Conflict(message) from None


def _editable(values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(EDITABLE))
    if unknown:
        raise Invalid(
            [Problem(key, "cannot be set", shown(values[key]), ", ".join(EDITABLE)) for key in unknown]
        )
    return dict(values)


def _save(obj: Model) -> None:
    """Validate and save. Raises Invalid with every invalid field, or Conflict for a name in use."""
    try:
        obj.full_clean()
    except ValidationError as error:
        raise Invalid(
            [
                Problem("" if field == "__all__" else field, message, shown(getattr(obj, field, None)))
                for field, messages in sorted(error.message_dict.items())
                for message in messages
            ]
        ) from None
    try:
        with transaction.atomic():
            obj.save()
    except IntegrityError:
        raise Conflict(f"The name {shown(str(obj))} is already in use.") from None


def _values(obj: Department | Project) -> dict[str, Any]:
    return {"name": obj.name, **{field: getattr(obj, field) for field in EDITABLE}}


def _scope(obj: Department | Project) -> dict[str, Any]:
    return {"project": obj} if isinstance(obj, Project) else {"department": obj}


def _ids(obj: Department | Project) -> dict[str, Any]:
    if isinstance(obj, Project):
        return {"department_id": obj.department_id, "project_id": obj.pk}
    return {"department_id": obj.pk}
