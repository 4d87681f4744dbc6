"""Issue, authenticate and revoke API tokens. Only a digest of the secret is stored."""

import hashlib
import json
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from berth.core.errors import Conflict, Forbidden, Invalid
from berth.core.problems import Problem, format_value
from berth.db.queries import prepared
from projects.access import Action, may, require
from projects.actor import SCOPES, Actor, GrantedRole
from projects.models import ApiToken
from projects.services import audit

PREFIX = "berth_"
MAX_LIFETIME = timedelta(days=366)
LAST_USED_INTERVAL = timedelta(minutes=1)
TOKEN_FIELDS = [field.attname for field in ApiToken._meta.concrete_fields]
USER_FIELDS = [field.attname for field in User._meta.concrete_fields]
# Every REST request with a token runs this query.
VALID_TOKEN = f"""
    SELECT {", ".join(f'token."{field.column}"' for field in ApiToken._meta.concrete_fields)},
        {", ".join(f'holder."{field.column}"' for field in User._meta.concrete_fields)},
        (SELECT coalesce(json_agg(json_build_array(role, department_id, project_id)), '[]')::text
         FROM projects_membership WHERE user_id = holder.id)
    FROM projects_apitoken token JOIN auth_user holder ON holder.id = token.user_id
    WHERE token.digest = %s AND token.revoked_at IS NULL
        AND (token.expires_at IS NULL OR token.expires_at > %s)
"""  # noqa: S608  (the names are those of the models)


def issue(
    *,
    actor: Actor,
    name: str,
    scopes: Collection[str],
    expires_at: datetime | None,
    user: User | None = None,
    interactive: bool = False,
) -> tuple[ApiToken, str]:
    """Return a new token and its secret, which cannot be shown again.

    A token issued with another token cannot exceed that token's scopes or expiry.
    """
    owner = user or actor.user
    if owner is None or (owner != actor.user and not may(actor, Action.ADMINISTER)):
        raise Forbidden("You can only issue tokens for yourself.")
    expires_at = expires_at or actor.token_expires_at
    _check_token(name, scopes, expires_at)
    missing = sorted(set(scopes) - actor.scopes)
    if missing:
        raise Forbidden(
            f"Your token lacks the {missing[0]} scope and cannot grant it. Use a token that has the scope."
        )
    if actor.token_expires_at is not None and expires_at is not None and expires_at > actor.token_expires_at:
        latest = f"now to {actor.token_expires_at:%Y-%m-%dT%H:%M:%SZ}"
        raise Invalid(
            [
                Problem(
                    "expires_at",
                    "is after the expiry of the token in use",
                    format_value(str(expires_at)),
                    latest,
                )
            ]
        )
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken(
        user=owner,
        name=name,
        prefix=secret[: len(PREFIX) + 5],
        digest=_hash_secret(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
        session_hash=owner.get_session_auth_hash() if interactive else "",
    )
    try:
        with transaction.atomic():
            token.save()
            audit.write_entry(
                actor, "issue", token, after={"name": name, "scopes": token.scopes, "for": str(owner)}
            )
    except IntegrityError:
        raise Conflict(
            f"A token named {format_value(name)} already exists. Revoke that token or choose another name."
        ) from None
    return token, secret


def sign_in_token_name() -> str:
    """Return a unique name for a token created by sign-in."""
    return f"login {timezone.now():%Y-%m-%d %H:%M:%S} {secrets.token_hex(4)}"


def revoke(*, actor: Actor, token: ApiToken) -> None:
    """Revoke a token. Only platform admins may revoke another user's token."""
    is_own = actor.user is not None and token.user_id == actor.user.pk
    require(actor, Action.VIEW if is_own else Action.ADMINISTER, token)
    before = {"name": token.name} if is_own else {"name": token.name, "for": str(token.user)}
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=timezone.now()):
            audit.write_entry(actor, "revoke", token, before=before)


def revoke_all(*, actor: Actor, user: User, only_by_sign_in: bool) -> int:
    """Revoke the user's tokens, or only those created by sign-in. Return the number of revoked tokens."""
    live = ApiToken.objects.filter(user=user, revoked_at__isnull=True).select_for_update()
    if only_by_sign_in:
        live = live.exclude(session_hash="")
    with transaction.atomic():
        rows = list(live)
        ApiToken.objects.filter(pk__in=[row.pk for row in rows]).update(revoked_at=timezone.now())
        for row in rows:
            audit.write_entry(actor, "revoke", row, before={"name": row.name})
    return len(rows)


def delete_ended_tokens(*, before: datetime) -> int:
    """Delete tokens that were revoked or expired before the given time.

    Return the number of deleted tokens.
    """
    ended = ApiToken.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before))
    return ended.delete()[0]


def authenticate(secret: str) -> ApiToken | None:
    """Return the valid token with the given secret, or None if there is none."""
    authenticated = authenticate_with_roles(secret)
    return None if authenticated is None else authenticated[0]


def authenticate_with_roles(secret: str) -> tuple[ApiToken, tuple[GrantedRole, ...]] | None:
    """Return the valid token with the given secret and all roles of its user, or None.

    Nothing is cached, so a revocation takes effect with the next request.
    """
    now = timezone.now()
    row = prepared.fetch_one(VALID_TOKEN, [_hash_secret(secret), now])
    if row is None:
        return None
    values, roles = row[:-1], json.loads(row[-1])
    token = ApiToken.from_db(connection.alias, TOKEN_FIELDS, values[: len(TOKEN_FIELDS)])
    token.scopes = json.loads(token.scopes)
    token.user = User.from_db(connection.alias, USER_FIELDS, values[len(TOKEN_FIELDS) :])
    if not is_usable(token):
        return None
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_INTERVAL:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token, tuple(GrantedRole(*role) for role in roles)


def valid_tokens(now: datetime) -> QuerySet[ApiToken]:
    """Return tokens that are neither revoked nor expired. Callers must also check `is_usable`."""
    return ApiToken.objects.select_related("user").filter(
        Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True
    )


def is_usable(token: ApiToken) -> bool:
    """Return whether the user is active, and the token is not a sign-in token that a password change has
    revoked.
    """
    return token.user.is_active and (
        not token.interactive or has_session_hash(token.user, token.session_hash)
    )


def has_session_hash(user: User, session_hash: str) -> bool:
    """Return whether the hash is derived from the user's current password and one of the server's secret
    keys.
    """
    hashes = (user.get_session_auth_hash(), *user.get_session_auth_fallback_hash())
    return any(constant_time_compare(session_hash, valid_hash) for valid_hash in hashes)


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check_token(name: str, scopes: Collection[str], expires_at: datetime | None) -> None:
    problems = []
    if not name.strip() or len(name) > 100 or not name.isprintable():
        problems.append(
            Problem("name", "is not a valid name", format_value(name), "1 to 100 printable characters")
        )
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        problems.append(
            Problem(
                "scopes", "unknown scope" if unknown else "missing", format_value(unknown), ", ".join(SCOPES)
            )
        )
    now = timezone.now()
    if expires_at is not None and not now < expires_at <= now + MAX_LIFETIME:
        problems.append(
            Problem(
                "expires_at",
                "is not a future time within 366 days",
                format_value(str(expires_at)),
                "now to 366 days from now",
            )
        )
    if problems:
        raise Invalid(problems)
