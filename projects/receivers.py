"""Receivers for signals of the pools app and of Django."""

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver

from pools import signals
from projects.access import Action, require
from projects.actor import Actor
from projects.services import announce, audit
from projects.services.workloads.ports import end_visits


@receiver(signals.changed)
def authorize_and_audit_pool_change(
    sender: Any, *, actor: Actor, action: str, obj: Any, before: Any = None, after: Any = None, **_: Any
) -> None:
    """Authorize and audit a pool change. A denied change rolls back the caller's transaction."""
    require(actor, Action.ADMINISTER)
    if not actor.is_system:
        audit.write_entry(actor, action, obj, before=before, after=after)
    announce.tenants_changed()


@receiver(user_logged_out, dispatch_uid="projects.end_visits_on_sign_out")
def end_visits_on_sign_out(sender: object, user: User | None = None, **_: Any) -> None:
    if user is not None:
        end_visits(user)
