"""Deactivate and activate user accounts. Accounts are never deleted, because the history refers to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict, NotFound
from projects.access import Action, require
from projects.actor import Actor
from projects.services import announce, audit
from projects.services.people import tokens
from projects.services.people.members import check_not_last_admin
from projects.services.workloads.ports import end_port_sessions


@dataclass(frozen=True, slots=True)
class Deactivation:
    """Result of deactivating a user, with the number of tokens revoked and browser sessions ended."""

    user: User
    revoked_tokens: int = 0
    ended_sessions: int = 0


def deactivate(*, actor: Actor, user: User) -> Deactivation:
    """Prevent a user from signing in, end their sessions and revoke their tokens.

    Workloads keep running, and roles are kept. Raises Conflict for the acting user and for the last platform
    admin.
    """
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        check_removable(actor=actor, user=user, action="deactivate")
        locked = _lock_user(user)
        if not locked.is_active:
            return Deactivation(locked)
        locked.is_active = False
        locked.save(update_fields=["is_active"])
        revoked = tokens.revoke_all(actor=actor, user=locked, only_by_sign_in=False)
        ended = _end_sessions(locked)
        end_port_sessions(locked)
        audit.write_entry(
            actor, "deactivate", locked, after={"revoked_tokens": revoked, "ended_sessions": ended}
        )
        announce.tenants_changed()
    return Deactivation(locked, revoked, ended)


def activate(*, actor: Actor, user: User) -> User:
    """Let a deactivated user sign in again with their previous roles."""
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        locked = _lock_user(user)
        if not locked.is_active:
            locked.is_active = True
            locked.save(update_fields=["is_active"])
            audit.write_entry(actor, "activate", locked)
            announce.tenants_changed()
    return locked


def check_removable(*, actor: Actor, user: User, action: str) -> None:
    """Raise Conflict if the user is the acting user or the last active platform admin."""
    if actor.user is not None and actor.user.pk == user.pk:
        raise Conflict(f"You cannot {action} your own account. Ask another platform admin.")
    check_not_last_admin(user)


def _lock_user(user: User) -> User:
    locked = User.objects.select_for_update().filter(pk=user.pk).first()
    if locked is None:
        raise NotFound(f"{user} has been deleted.")
    return locked


def other_sessions(user: User, current: str | None) -> list[str]:
    """Return the keys of the user's valid browser sessions, except the current one."""
    session_hash = user.get_session_auth_hash()
    return [
        key
        for key, values in _browser_sessions(user)
        if key != current and values.get(HASH_SESSION_KEY) == session_hash
    ]


def end_other_sessions(*, actor: Actor, user: User, current: str | None) -> int:
    """End the user's browser sessions, except the current one. Return the number of ended sessions."""
    with transaction.atomic():
        keys = other_sessions(user, current)
        Session.objects.filter(pk__in=keys).delete()
        audit.write_entry(actor, "end_sessions", user, after={"ended_sessions": len(keys)})
    return len(keys)


def _browser_sessions(user: User) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        values = row.get_decoded()
        if values.get(SESSION_KEY) == str(user.pk):
            yield row.session_key, values


def _end_sessions(user: User) -> int:
    keys = [key for key, _ in _browser_sessions(user)]
    Session.objects.filter(pk__in=keys).delete()
    return len(keys)
