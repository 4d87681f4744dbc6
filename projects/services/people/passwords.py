"""Change a user's password and revoke access gained with the old password."""

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from berth.core.errors import Conflict, Forbidden, Invalid, NotFound
from berth.core.problems import Problem
from projects.actor import Actor
from projects.models import ApiToken
from projects.services import audit
from projects.services.people import tokens
from projects.services.workloads.ports import end_port_sessions

SINGLE_SIGN_ON = (
    "This account signs in with single sign-on and has no password in Berth. Change your password with your "
    "identity provider, or ask a platform admin to set one in Berth."
)


class WrongPassword(Invalid):
    def __init__(self) -> None:
        super().__init__([Problem("current_password", "does not match your current password")])


@dataclass(frozen=True, slots=True)
class PasswordChange:
    """Result of a password change. `token` and `secret` replace the sign-in token in use, if any."""

    user: User
    revoked: int
    token: ApiToken | None = None
    secret: str = ""


def change(*, actor: Actor, current: str, new: str, revoke_tokens: bool = False) -> PasswordChange:
    """Replace the acting user's password.

    All other sessions end, and tokens created by sign-in are revoked. If `revoke_tokens` is set, all other
    tokens are revoked too. If the request used a sign-in token, a new one replaces it. Raises Conflict for
    accounts without a password, WrongPassword, and Invalid for a weak new password.
    """
    if actor.user is None:
        raise Forbidden("Only users have passwords. Sign in as a user.")
    with transaction.atomic():
        user = User.objects.select_for_update().filter(pk=actor.user.pk, is_active=True).first()
        if user is None:
            raise NotFound("This account has been deactivated. Ask a platform admin to activate the account.")
        _check_new_password(user, current, new)
        current_token = ApiToken.objects.filter(pk=actor.token_id).first() if actor.token_id else None
        user.set_password(new)
        user.save(update_fields=["password"])
        revoked = tokens.revoke_all(actor=actor, user=user, only_by_sign_in=not revoke_tokens)
        audit.write_entry(actor, "set_password", user, after={"revoked_tokens": revoked})
        end_port_sessions(user)
        if current_token is None or not current_token.interactive:
            return PasswordChange(user, revoked)
        token, secret = tokens.issue(
            actor=actor,
            name=tokens.sign_in_token_name(),
            scopes=current_token.scopes,
            expires_at=current_token.expires_at,
            user=user,
            interactive=True,
        )
        return PasswordChange(user, revoked, token, secret)


def record_admin_password_change(*, actor: Actor, user: User) -> None:
    """Record that an admin set or removed a password, and revoke access gained with the old password."""
    with transaction.atomic():
        revoked = tokens.revoke_all(actor=actor, user=user, only_by_sign_in=True)
        audit.write_entry(actor, "set_password", user, after={"revoked_tokens": revoked})
        end_port_sessions(user)


def _check_new_password(user: User, current: str, new: str) -> None:
    if not user.has_usable_password():
        raise Conflict(SINGLE_SIGN_ON)
    if not user.check_password(current):
        raise WrongPassword
    if new == current:
        raise Invalid([Problem("new_password", "must differ from the current one")])
    try:
        validate_password(new, user)
    except ValidationError as error:
        raise Invalid([Problem("new_password", message) for message in error.messages]) from None
