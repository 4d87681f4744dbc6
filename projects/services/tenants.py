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
# What decides between departments is the platform's to say: none lifts itself above others, nor says for
# how long others may not take back what it has borrowed.
OF_DEPARTMENT, OF_PROJECT = ("rank", "reclaim_min_runtime"), ("reclaim_min_runtime",)


def create_department(*, acting: Acting, name: str, **values: Any) -> Department:
    require(acting, Action.ADMINISTER)
    department = Department(name=name, **_known(values))
    with transaction.atomic():
        _save(department)
        audit.write_down(acting, "create", department, after=_values(department), department=department)
        announce.tenants_changed(department_id=department.pk)
    return department


def edit_department(*, acting: Acting, department: Department, changes: Mapping[str, Any]) -> Department:
    require(acting, Action.EDIT, department)
    _check_decider(acting, department, changes, OF_DEPARTMENT)
    return _edit(acting, department, changes)


def delete_department(*, acting: Acting, department: Department) -> None:
    require(acting, Action.ADMINISTER)
    _delete(acting, department, "It still has projects: delete or move them first.")


def create_project(*, acting: Acting, department: Department, name: str, **values: Any) -> Project:
    require(acting, Action.EDIT, department)
    _check_decider(acting, Project(), values, OF_PROJECT)
    project = Project(department=department, name=name, **_known(values))
    with with_living_references(f"The department {department.name}"):
        _save(project)
        audit.write_down(acting, "create", project, after=_values(project), project=project)
        announce.tenants_changed(department_id=department.pk, project_id=project.pk)
    return project


def edit_project(*, acting: Acting, project: Project, changes: Mapping[str, Any]) -> Project:
    require(acting, Action.EDIT, project)
    _check_decider(acting, project, changes, OF_PROJECT)
    return _edit(acting, project, changes)


def delete_project(*, acting: Acting, project: Project) -> None:
    require(acting, Action.EDIT, project)
    _delete(acting, project, "It still has workloads: delete them first.")


def _check_decider(
    acting: Acting, held: Department | Project, values: Mapping[str, Any], fields: tuple[str, ...]
) -> None:
    if any(field in values and values[field] != getattr(held, field) for field in fields):
        require(acting, Action.ADMINISTER)


def _edit(acting: Acting, obj: T, changes: Mapping[str, Any]) -> T:
    with transaction.atomic():
        locked = type(obj).objects.select_for_update().filter(pk=obj.pk).first()
        if locked is None:
            raise NotFound(f"{obj} was deleted at the same moment.")
        before = _values(locked)
        for field, value in _known(changes).items():
            setattr(locked, field, value)
        _save(locked)
        old, new = audit.differences(before, _values(locked))
        if new:
            audit.write_down(acting, "edit", locked, before=old, after=new, **_scope(locked))
            announce.tenants_changed(**_ids(locked))
    return locked


def _delete(acting: Acting, obj: Department | Project, because: str) -> None:
    try:
        with transaction.atomic():
            locked = type(obj).objects.select_for_update(of=("self",)).filter(pk=obj.pk).first()
            if locked is None:
                raise NotFound(f"{obj} was deleted already.")
            audit.write_down(acting, "delete", obj, before=_values(obj), **_scope(obj))
            announce.tenants_changed(**_ids(obj))
            obj.delete()
            connection.check_constraints()  # what came between our look and our lock is seen here
    except (ProtectedError, IntegrityError):
        raise Conflict(because) from None


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(EDITABLE))
    if unknown:
        raise Invalid(
            [Problem(key, "cannot be set", shown(values[key]), ", ".join(EDITABLE)) for key in unknown]
        )
    return dict(values)


def _save(obj: Model) -> None:
    """Saves what the model's own rules allow; otherwise every broken field is named."""
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
        raise Conflict(f"There is one of that name already: {shown(str(obj))}.") from None


def _values(obj: Department | Project) -> dict[str, Any]:
    return {"name": obj.name, **{field: getattr(obj, field) for field in EDITABLE}}


def _scope(obj: Department | Project) -> dict[str, Any]:
    return {"project": obj} if isinstance(obj, Project) else {"department": obj}


def _ids(obj: Department | Project) -> dict[str, Any]:
    if isinstance(obj, Project):
        return {"department_id": obj.department_id, "project_id": obj.pk}
    return {"department_id": obj.pk}
