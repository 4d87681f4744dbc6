"""Receivers for signals from the pools app and from Django."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest_visible_names
from pools import signals
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Project
from projects.services import announce, audit
from projects.services.workloads.ports import end_port_sessions


@receiver(signals.changed)
def authorize_and_audit_pool_change(
    sender: Any,
    *,
    actor: Actor,
    action: audit.AuditAction,
    obj: Any,
    before: Any = None,
    after: Any = None,
    **_: Any,
) -> None:
    """Authorize and audit a pool change. A denied change rolls back the caller's transaction."""
    require(actor, Action.ADMINISTER)
    check_volume_projects(before or {}, after or {})
    if not actor.is_system:
        audit.write_entry(actor, action, obj, before=before, after=after)
    announce.tenants_changed()


@receiver(signals.proposed)
def check_proposed_pool(sender: Any, *, before: Any = None, after: Any = None, **_: Any) -> None:
    """Reject the preview of a pool change for the same reasons as the change itself."""
    check_volume_projects(before or {}, after or {})


def check_volume_projects(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise Invalid if a volume names a project that does not exist.

    Names that the volumes contained before are accepted, because these projects may have been deleted.
    """
    earlier = {name for volume in before.get("volumes") or () for name in volume["projects"]}
    paths = {
        f"volumes[{number}].projects": volume["projects"]
        for number, volume in enumerate(after.get("volumes") or ())
    }
    unknown = {name for names in paths.values() for name in names} - earlier
    if not unknown:
        return
    existing = set(Project.objects.values_list("name", flat=True))
    problems = [
        Problem(
            path, "does not exist", format_value(name), suggest_visible_names(name, existing, "a project")
        )
        for path, names in paths.items()
        for name in names
        if name in unknown - existing
    ]
    if problems:
        raise Invalid(problems)


@receiver(user_logged_out, dispatch_uid="projects.end_port_sessions_on_sign_out")
def end_port_sessions_on_sign_out(sender: object, user: User | None = None, **_: Any) -> None:
    if user is not None:
        end_port_sessions(user)
