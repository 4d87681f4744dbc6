"""Middleware for all pages: acting user, content security policy and error pages."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from berth.core.errors import BerthError, Unauthenticated
from berth.core.wording.problem_sentences import describe_error
from berth.server.web.zones import user_time_zone

if TYPE_CHECKING:
    from berth.server.web.pages import Request
from projects.access import Action, require
from projects.actor import Actor

SWAPPED_STATUSES = (409, 412, 422)  # htmx shows responses with these statuses in place, see base.html
GetResponse = Callable[[HttpRequest], HttpResponse]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self' {socket}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# The admin site's interface (Alpine.js) evaluates expressions and sets styles in its own templates.
# The policy still blocks inline scripts.
ADMIN_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
# The documentation's theme uses inline scripts and styles. Its files are built from this repository.
SITE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
DOCS = "/api/v1/docs"


class ActingUser:
    """Middleware that sets `actor`, `require` and `listen_since` on the request.

    `require` checks permissions without importing roles. `listen_since` is the time in seconds since 1970
    from which the page receives changes. REST views take the user from the token.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        page = cast("Any", request)
        page.listen_since = f"{time.time():.3f}"
        page.actor = SimpleLazyObject(lambda: _acting_user(request))
        page.require = partial(_require, request)
        return self.get_response(request)


class ContentSecurityPolicy:
    """Middleware that adds a content security policy, so that pages load resources only from this server."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", _content_security_policy(request))
        return response


def _content_security_policy(request: HttpRequest) -> str:
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


class ServiceErrorPages:
    """Middleware that shows a service error as an error page, or as a message on an open page."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, BerthError) or request.path.startswith("/api/"):
            return None
        if getattr(request, "htmx", False) and error.status in SWAPPED_STATUSES:
            context = {"title": error.title, "text": describe_error(error), "back": request.path}
            response = render(request, "web/refusal_body.html", context)
            response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#dialog", "innerHTML"
        elif getattr(request, "htmx", False) or not request.accepts("text/html"):
            response = HttpResponse(error.detail, content_type="text/plain; charset=utf-8")
        else:
            response = render(request, "web/rejection.html", {"error": error})
        response.status_code = error.status
        response.headers["Cache-Control"] = "no-store, private"  # not cached: pages show who is signed in
        return response


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the page for an unexpected error. The page needs neither the database nor the session."""
    context = {
        "is_change": request.method not in ("GET", "HEAD", "OPTIONS"),
        "path": request.get_full_path(),
        "request_id": getattr(request, "request_id", ""),
    }
    response = HttpResponse(render_to_string("500.html", context), status=500)
    response.headers["Cache-Control"] = "no-store"
    return response


class AdminTimeZone:
    """Middleware that uses the reader's time zone in the admin site.

    On other pages, the browser converts times.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/admin/"):
            return self.get_response(request)
        with timezone.override(user_time_zone(request)):
            response = self.get_response(request)
            return response.render() if isinstance(response, SimpleTemplateResponse) else response


def _acting_user(request: HttpRequest) -> Actor:
    if not request.user.is_authenticated:
        raise Unauthenticated
    return Actor.for_user(
        request.user,
        request_id=getattr(request, "request_id", ""),
        session_key=request.session.session_key or "",
    )


def _require(request: HttpRequest, action: str, obj: Any = None) -> None:
    require(cast("Request", request).actor, Action(action), obj)
