"""Here we surround every page: who acts, what a page may load, and how a refusal looks."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from berth.core.errors import BerthError, Unauthenticated
from berth.web.zones import zone_of
from projects.access import Action, require
from projects.acting import Acting

Answer = Callable[[HttpRequest], HttpResponse]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self' {socket}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
OTHERS = ("/admin", "/api/")  # the admin site and the API's pages bring scripts that need rules of their own


class WhoActs:
    """Sets `request.acting`, and `request.require` for floors below the one that knows roles; and
    `request.begun`, the moment (in seconds since 1970) from which on a page wants to hear of changes.

    The REST interface finds its own by token.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.begun = f"{time.time():.3f}"  # type: ignore[attr-defined]
        request.acting = SimpleLazyObject(lambda: _acting(request))  # type: ignore[attr-defined]
        request.require = partial(_require, request)  # type: ignore[attr-defined]
        return self.get_response(request)


class Policy:
    """Pages load nothing but what this server serves, and run no script that stands in the page."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        if not request.path.startswith(OTHERS):
            scheme = "wss" if request.is_secure() else "ws"
            policy = POLICY.format(socket=f"{scheme}://{request.get_host()}")
            answer.headers.setdefault("Content-Security-Policy", policy)
        return answer


class Refusals:
    """Turns an error of the services into a page, or into one line for a page that is open already."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, BerthError) or request.path.startswith("/api/"):
            return None
        if getattr(request, "htmx", False) or not request.accepts("text/html"):
            return HttpResponse(error.detail, status=error.status, content_type="text/plain; charset=utf-8")
        return render(request, "web/refusal.html", {"error": error}, status=error.status)


class AdminsZone:
    """The admin site writes and reads times in the reader's zone; pages of ours leave that to the browser."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/admin/"):
            return self.get_response(request)
        with timezone.override(zone_of(request)):
            answer = self.get_response(request)
            return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer


def _acting(request: HttpRequest) -> Acting:
    if not request.user.is_authenticated:
        raise Unauthenticated
    return Acting.person(
        request.user,
        request_id=getattr(request, "request_id", ""),
        session_key=request.session.session_key or "",
    )


def _require(request: HttpRequest, action: str, obj: Any = None) -> None:
    require(request.acting, Action(action), obj)  # type: ignore[attr-defined]
