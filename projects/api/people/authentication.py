"""Authentication of requests by API token or browser session."""

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.request import Request

from berth.core.errors import Unauthenticated
from berth.server.api.problems import CHALLENGE
from berth.server.api.rate_limits import client_address, spend
from berth.server.front.bodies import RequestSender
from projects.actor import Actor
from projects.connections.credentials import Credential, load_active_user
from projects.services.people import tokens
from projects.services.sessions.workers import authenticate_pod


class BearerTokenAuthentication(BaseAuthentication):
    """Authenticate by API token. Failed attempts are rate-limited per client address."""

    def authenticate(self, request: Request) -> tuple[User, Actor] | None:
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, secret = header.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated(
                "The Authorization header has no bearer token. Send `Authorization: Bearer berth_...`."
            )
        authenticated = tokens.authenticate_with_roles(secret.strip())
        if authenticated is None:
            spend("bad_token", f"address {client_address(request)}")
            raise Unauthenticated("This token is unknown, expired or revoked. Run `berth login`.")
        token, roles = authenticated
        scopes = frozenset(token.scopes)
        return token.user, Actor.for_user(
            token.user, scopes, _request_id(request), token.expires_at, token.pk, roles_of_token=roles
        )

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class BrowserSessionAuthentication(SessionAuthentication):
    """Authenticate by browser session. Changes require a CSRF token."""

    def authenticate(self, request: Request) -> tuple[User, Actor] | None:
        signed_in = super().authenticate(request)
        if signed_in is None:
            return None
        user, key = signed_in[0], request._request.session.session_key or ""
        return user, Actor.for_user(user, request_id=_request_id(request), session_key=key)

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


def _request_id(request: Request) -> str:
    return getattr(request, "request_id", "")


async def may_send_large_bodies(sender: RequestSender) -> bool:
    """Return whether the request has a valid API token, browser session or session pod's secret.

    Only these clients send code, functions and results.
    """
    return await sync_to_async(_is_valid_sender, thread_sensitive=False)(sender)


def _is_valid_sender(sender: RequestSender) -> bool:
    try:
        if sender.session_key:
            return load_active_user(Credential(session_key=sender.session_key)) is not None
        return tokens.authenticate(sender.secret) is not None or bool(authenticate_pod(sender.secret))
    except Unauthenticated:
        return False
    finally:
        connection.close()
