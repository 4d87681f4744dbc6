"""Middleware for all pages: acting user, content security policy and error pages."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from berth.core.errors import BerthError, Unauthenticated
from berth.server.web.zones import zone_of

if TYPE_CHECKING:
    from berth.server.web.pages import Request
from projects.access import Action, require
from projects.acting import Acting

Answer = Callable[[HttpRequest], HttpResponse]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self' {socket}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The admin site's interface (Alpine.js) evaluates expressions from its own templates, which also set colours,
# widths and heights. The policy still refuses inline scripts.
ADMIN_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
# The theme of the documentation site sets its base address and colours in inline scripts and styles. The
# site consists of static files built from this repository.
SITE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
DOCS = "/api/v1/docs"


class ActingUser:
    """Set `acting`, `require` and `begun` on the request.

    `require` checks permissions for apps that do not know roles. `begun` is the time, in seconds since 1970,
    from which the page listens for changes. REST views determine the acting user from the token.
    """

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        page = cast("Any", request)
        page.begun = f"{time.time():.3f}"
        page.acting = SimpleLazyObject(lambda: _acting(request))
        page.require = partial(_require, request)
        return self.get_response(request)


class Policy:
    """Set the content security policy: pages load only from this server."""

    def __init__(self, get_response: Answer) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self.get_response(request)
        answer.headers.setdefault("Content-Security-Policy", _policy(request))
        return answer


def _policy(request: HttpRequest) -> str:
    path = request.path
    if path == "/admin" or path.startswith("/admin/"):
        return ADMIN_POLICY
    if path == DOCS or path.startswith(f"{DOCS}/"):
        return DOCS_POLICY
    if path.startswith("/docs/"):
        return SITE_POLICY
    if path.startswith("/api/"):
        return API_POLICY
    scheme = "wss" if request.is_secure() else "ws"
    return POLICY.format(socket=f"{scheme}://{request.get_host()}")


class Refusals:
    """Convert a service error to an error page, or to a message for a page that is already open."""

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
    """Use the reader's time zone in the admin site. On other pages, the browser converts times."""

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
    require(cast("Request", request).acting, Action(action), obj)
