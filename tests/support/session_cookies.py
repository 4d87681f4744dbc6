"""Session cookies for requests without Django's test client."""

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.test import Client


def session_cookie(user: User | AnonymousUser | None) -> str:
    """Return the Cookie header for a new session of `user`, or an empty header for an anonymous user."""
    if user is None or user.pk is None:
        return ""
    browser = Client()
    browser.force_login(user)
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
