"""What a connection was opened with, and whether that is still valid."""

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
from projects.services.people.tokens import has_session_hash, is_usable, valid_tokens
from projects.visits.headers import Headers, cookie_in


@dataclass(frozen=True, slots=True)
class Credential:
    """One of three: a browser session, an API token, or a visit to a port (the digest of its cookie)."""

    session_key: str = ""
    token_id: int | None = None
    visit: str = ""


def session_key(headers: Headers) -> str:
    """The key in the session cookie of a request; empty without one."""
    return cookie_in(headers, settings.SESSION_COOKIE_NAME)


def person_behind(credential: Credential) -> User | None:
    """The active person whom the session or the token signs in now, read from the database."""
    if credential.token_id is not None:
        token = valid_tokens(timezone.now()).filter(pk=credential.token_id).first()
        return token.user if token is not None and is_usable(token) else None
    return _person_in_session(credential.session_key) if credential.session_key else None


def roles_of(user: User) -> frozenset[tuple[Any, ...]]:
    """Everything that gives the person rights; a right that is lost is missing in a later answer."""
    held = Membership.objects.filter(user=user).values_list("role", "department_id", "project_id")
    superuser = {("superuser",)} if user.is_superuser else set()
    return frozenset({*held, *superuser})


def states(credentials: Iterable[Credential]) -> Mapping[Credential, object]:
    """A value for each credential that differs once it has ended or its person's rights have changed.

    Takes at most seven statements however many credentials there are.
    """
    given = frozenset(credentials)
    owners = {**_sessions(given), **_tokens(given), **_visits(given)}
    people = _people({user for user, _ in owners.values()})
    return {each: (owner, people.get(owner[0])) if (owner := owners.get(each)) else None for each in given}


Owners = dict[Credential, tuple[int, object]]  # the person's id, and what else must stay the same


def _sessions(given: frozenset[Credential]) -> Owners:
    keys = [each.session_key for each in given if each.session_key]
    if not keys:
        return {}
    rows = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    owners: Owners = {}
    for row in rows:
        data = row.get_decoded()
        if (user := _user_id(data)) is not None:
            owners[Credential(session_key=row.session_key)] = user, data.get(HASH_SESSION_KEY)
    return owners


def _tokens(given: frozenset[Credential]) -> Owners:
    ids = [each.token_id for each in given if each.token_id is not None]
    if not ids:
        return {}
    rows = valid_tokens(timezone.now()).filter(pk__in=ids)
    return {Credential(token_id=row.pk): (row.user_id, None) for row in rows}


def _visits(given: frozenset[Credential]) -> Owners:
    """A visit lasts no longer than the session or the token that asked for it."""
    digests = [each.visit for each in given if each.visit]
    if not digests:
        return {}
    rows = PortLink.objects.filter(cookie_digest__in=digests, visit_until__gt=timezone.now())
    visits = {
        Credential(visit=str(digest)): (user, Credential(session_key=key, token_id=token))
        for digest, user, key, token in rows.values_list(
            "cookie_digest", "user_id", "session_key", "token_id"
        )
    }
    opened_with = frozenset(each for _, each in visits.values()) - {Credential()}
    alive = {Credential(), *_sessions(opened_with), *_tokens(opened_with)}
    return {visit: owner for visit, owner in visits.items() if owner[1] in alive}


def _people(ids: set[int]) -> dict[int, object]:
    if not ids:
        return {}
    held: dict[int, set[Any]] = {}
    for user, *role in Membership.objects.filter(user__in=ids).values_list(
        "user_id", "role", "department_id", "project_id"
    ):
        held.setdefault(user, set()).add(tuple(role))
    people = User.objects.filter(pk__in=ids).values_list("pk", "is_active", "is_superuser", "password")
    return {pk: (*rest, frozenset(held.get(pk, ()))) for pk, *rest in people}


def _person_in_session(key: str) -> User | None:
    """Unlike Django's get_user, which keeps what it read first and may write, this reads and only reads."""
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
