"""Decide who may send a body above the usual limit: functions of sessions and what they returned."""

from asgiref.sync import sync_to_async
from django.db import connection

from berth.core.errors import Unauthenticated
from projects.services.people.tokens import authenticate
from projects.services.sessions.workers import pod_behind


async def may_send_large(secret: str) -> bool:
    """Whether the secret is a valid API token or belongs to a live pod of a session."""
    return await sync_to_async(_is_valid, thread_sensitive=False)(secret)


def _is_valid(secret: str) -> bool:
    try:
        return authenticate(secret) is not None or bool(pod_behind(secret))
    except Unauthenticated:
        return False
    finally:
        connection.close()
