"""Write audit log entries with the actor, the action and the changed values."""

from typing import Any, Literal, TypedDict, Unpack, get_args

from django.db.models import Model

from berth.db.writes.new_rows import new_row
from projects.actor import Actor
from projects.models import Audit, Department, Project

AuditAction = Literal[
    "activate", "begin_weight_update", "cancel", "close_copy", "close_forward", "close_sftp", "close_shell",
    "close_ssh", "configure_autoscaler", "cordon", "create", "deactivate", "delete", "delete_budget",
    "delete_files", "delete_schedule", "delete_secret", "delete_template", "disable_autoscaler", "drain",
    "edit", "enable_autoscaler", "end_session", "end_sessions", "end_weight_update", "forget_host", "grant",
    "identify", "issue", "issue_join_token", "open_copy", "open_forward", "open_port", "open_sftp",
    "open_shell", "open_ssh", "pause", "pause_schedule", "prune", "read_files", "remove_machine",
    "remove_quota", "resend", "resume", "resume_schedule", "retry", "revoke", "revoke_join_token",
    "run_schedule", "save", "scale", "scale_in", "scale_out", "set_budget", "set_password", "set_quota",
    "set_schedule", "set_secret", "set_template", "stop_by_rule", "submit", "subscribe", "suspend",
    "suspend_idle", "terminate", "test", "uncordon", "unsubscribe", "upgrade_agent",
]  # fmt: skip
ACTIONS: tuple[AuditAction, ...] = get_args(AuditAction)


class EntryValues(TypedDict, total=False):
    """Optional values of an audit entry. `before` and `after` contain only changed values."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None
    project: Project | None
    department: Department | None
    change_id: int | None


def write_entry(actor: Actor, action: AuditAction, obj: Model, **values: Unpack[EntryValues]) -> None:
    """Write an audit entry in the caller's transaction."""
    build_entry(actor, action, obj, **values).save(force_insert=True)


def build_entry(actor: Actor, action: AuditAction, obj: Model, **values: Unpack[EntryValues]) -> Audit:
    """Return an unsaved audit entry."""
    project, department = values.get("project"), values.get("department")
    if project is not None:
        department = project.department
    return new_row(
        Audit,
        actor=actor.name,
        action=action,
        object_type=obj._meta.model_name or "",
        object_id=str(obj.pk),
        object_name=str(obj)[:200],
        department_id=department.pk if department else None,
        project_id=project.pk if project else None,
        before=values.get("before"),
        after=values.get("after"),
        request_id=actor.request_id,
        change_id=values.get("change_id"),
    )


def write_change(
    actor: Actor,
    action: AuditAction,
    obj: Model,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    *,
    project: Project | None = None,
    department: Department | None = None,
) -> None:
    """Write an audit entry with the changed values, or with all values of a new or deleted object."""
    if before and after:
        before, after = changed_values(before, after)
    write_entry(actor, action, obj, before=before, after=after, project=project, department=department)


def changed_values(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reduce both mappings to the keys of `after` whose values differ."""
    keys = [key for key in after if before.get(key) != after[key]]
    return {k: before.get(k) for k in keys}, {k: after[k] for k in keys}
