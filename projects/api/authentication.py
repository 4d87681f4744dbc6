"""Authenticate requests by token or session."""

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from berth.core.errors import Unauthenticated
from berth.server.api.problems import CHALLENGE
from berth.server.api.rate_limits import client_address, spend
from projects.acting import Acting
from projects.services.people import tokens
from projects.services.sessions.workers import pod_behind


class BearerTokens(BaseAuthentication):
    """Authenticate by API token; failed attempts are rate-limited by address."""

    def authenticate(self, request: Request) -> tuple[User, Acting] | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("Send a token: Authorization: Bearer berth_...")
        token = tokens.authenticate(secret.strip())
        if token is None:
            spend("bad_token", f"address {client_address(request)}")
            raise Unauthenticated("This token is unknown, expired or revoked. Run `berth login`.")
        scopes = frozenset(token.scopes)
        return token.user, Acting.person(token.user, scopes, _id_of(request), token.expires_at, token.pk)

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class Sessions(SessionAuthentication):
    """Authenticate by browser session; changes need the CSRF token."""

    def authenticate(self, request: Request) -> tuple[User, Acting] | None:
        signed_in = super().authenticate(request)
        if signed_in is None:
            return None
        user, key = signed_in[0], request._request.session.session_key or ""
        return user, Acting.person(user, request_id=_id_of(request), session_key=key)

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def _id_of(request: Request) -> str:
    return getattr(request, "request_id", "")


async def may_send_large(secret: str) -> bool:
    """Return whether the secret is a valid API token or belongs to a live pod of a session.

    Only these callers may send bodies above the usual limit: functions of sessions and their results.
    """
    return await sync_to_async(_is_valid, thread_sensitive=False)(secret)


def _is_valid(secret: str) -> bool:
    try:
        return tokens.authenticate(secret) is not None or bool(pod_behind(secret))
    except Unauthenticated:
        return False
    finally:
        connection.close()
