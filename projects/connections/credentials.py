"""Credentials of open connections, and checks that they are still valid."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.utils import timezone

from projects.models import Membership, PortLink
from projects.port_proxy.headers import Headers, find_cookie
from projects.services.people.tokens import has_session_hash, is_usable, valid_tokens


@dataclass(frozen=True, slots=True)
class Credential:
    """Browser session, API token or port session.

    A port session is identified by the digest of its cookie.
    """

    session_key: str = ""
    token_id: int | None = None
    port_session: str = ""


def session_key(headers: Headers) -> str:
    """Return the session key from a request's cookies, or an empty string if there is none."""
    return find_cookie(headers, settings.SESSION_COOKIE_NAME)


def load_active_user(credential: Credential) -> User | None:
    """Return the credential's user, or None if the session or token is invalid or the user is inactive."""
    if credential.token_id is not None:
        token = valid_tokens(timezone.now()).filter(pk=credential.token_id).first()
        return token.user if token is not None and is_usable(token) else None
    return _session_user(credential.session_key) if credential.session_key else None


def load_roles(user: User) -> frozenset[tuple[Any, ...]]:
    """Return a user's roles. Revoking any of them ends the connection."""
    roles = Membership.objects.filter(user=user).values_list("role", "department_id", "project_id")
    superuser = {("superuser",)} if user.is_superuser else set()
    return frozenset({*roles, *superuser})


def load_states(credentials: Iterable[Credential]) -> Mapping[Credential, object]:
    """Return a value for each credential, in at most seven queries.

    The value changes when the credential becomes invalid or the user's permissions change.
    """
    unique = frozenset(credentials)
    owners = {**_session_owners(unique), **_token_owners(unique), **_port_session_owners(unique)}
    rights = _load_rights({user for user, _ in owners.values()})
    return {
        credential: (owner, rights.get(owner[0])) if (owner := owners.get(credential)) else None
        for credential in unique
    }


# Maps each credential to its user's ID and a value that changes when the credential becomes invalid.
OwnersByCredential = dict[Credential, tuple[int, object]]


def _session_owners(credentials: frozenset[Credential]) -> OwnersByCredential:
    keys = [credential.session_key for credential in credentials if credential.session_key]
    if not keys:
        return {}
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    owners: OwnersByCredential = {}
    for row in rows:
        data = row.get_decoded()
        if (user := _user_id(data)) is not None:
            owners[Credential(session_key=row.session_key)] = user, data.get(HASH_SESSION_KEY)
    return owners


def _token_owners(credentials: frozenset[Credential]) -> OwnersByCredential:
    ids = [credential.token_id for credential in credentials if credential.token_id is not None]
    if not ids:
        return {}
    rows = valid_tokens(timezone.now()).filter(pk__in=ids)
    return {Credential(token_id=row.pk): (row.user_id, None) for row in rows}


def _port_session_owners(credentials: frozenset[Credential]) -> OwnersByCredential:
    """Return the owner of each live port session.

    A port session ends when the browser session or token that opened it ends.
    """
    digests = [credential.port_session for credential in credentials if credential.port_session]
    if not digests:
        return {}
    rows = PortLink.objects.filter(cookie_digest__in=digests, session_until__gt=timezone.now())
    owners = {
        Credential(port_session=str(digest)): (user, Credential(session_key=key, token_id=token))
        for digest, user, key, token in rows.values_list(
            "cookie_digest", "user_id", "session_key", "token_id"
        )
    }
    openers = frozenset(opener for _, opener in owners.values()) - {Credential()}
    alive = {Credential(), *_session_owners(openers), *_token_owners(openers)}
    return {credential: owner for credential, owner in owners.items() if owner[1] in alive}


def _load_rights(ids: set[int]) -> dict[int, object]:
    if not ids:
        return {}
    roles: dict[int, set[Any]] = {}
    for user, *role in Membership.objects.filter(user__in=ids).values_list(
        "user_id", "role", "department_id", "project_id"
    ):
        roles.setdefault(user, set()).add(tuple(role))
    rights = User.objects.filter(pk__in=ids).values_list("pk", "is_active", "is_superuser", "password")
    return {pk: (*rest, frozenset(roles.get(pk, ()))) for pk, *rest in rights}


def _session_user(key: str) -> User | None:
    """Return the session's active user, or None.

    Unlike Django's `get_user`, this function neither caches nor writes.
    """
    data = SessionStore(key).load()
    user_id = _user_id(data)
    user = User.objects.filter(pk=user_id, is_active=True).first() if user_id is not None else None
    if user is None or not has_session_hash(user, str(data.get(HASH_SESSION_KEY, ""))):
        return None
    return user


def _user_id(data: Mapping[str, Any]) -> int | None:
    try:
        return int(User._meta.pk.to_python(data.get(SESSION_KEY)))
    except (TypeError, ValidationError):
        return None
