"""Write audit log entries with the actor, the action and the changed values."""

from typing import Any

from django.db.models import Model

from projects.actor import Actor
from projects.models import Audit, Department, Project


def write_entry(
    actor: Actor,
    action: str,
    obj: Model,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    project: Project | None = None,
    department: Department | None = None,
    change_id: int | None = None,
) -> None:
    """Write an audit entry in the caller's transaction. Pass only changed values."""
    if project is not None:
        department = project.department
    Audit.objects.create(
        actor=actor.name,
        action=action,
        object_type=obj._meta.model_name or "",
        object_id=str(obj.pk),
        object_name=str(obj)[:200],
        department_id=department.pk if department else None,
        project_id=project.pk if project else None,
        before=before,
        after=after,
        request_id=actor.request_id,
        change_id=change_id,
    )


def changed_values(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both mappings, reduced to the keys of `after` whose values differ."""
    keys = [key for key in after if before.get(key) != after[key]]
    return {k: before.get(k) for k in keys}, {k: after[k] for k in keys}
