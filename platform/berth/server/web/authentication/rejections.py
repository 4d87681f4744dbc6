"""Pages for requests that Django rejects: missing permissions and forms without a valid CSRF token."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from berth.core.errors import BerthError, Forbidden
from berth.server.web.authentication.login import explain_admin_site_rejection
from projects.access import is_platform_admin
from projects.actor import Actor

READ_ONLY = "The admin site does not allow this change, because Berth itself writes these records."
SIGNED_OUT = "You are not signed in."
FORM_EXPIRED = (
    "The form does not belong to this session: you have signed in or out since it was opened, or the browser "
    "blocks cookies. Open the page again and repeat the change."
)


class ExpiredForm(Forbidden):
    title = "The form has expired"


def permission_denied(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Return the page for a request that the admin site rejects."""
    user = request.user
    if not user.is_authenticated:
        detail = SIGNED_OUT
    elif is_platform_admin(Actor.for_user(user)) and admin.site.has_permission(request):
        detail = READ_ONLY
    else:
        detail = explain_admin_site_rejection(user)
    return _rejection_page(request, Forbidden(detail))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return the page for a form without a valid CSRF token. `reason` is for developers."""
    return _rejection_page(request, ExpiredForm(FORM_EXPIRED))


def _rejection_page(request: HttpRequest, error: BerthError) -> HttpResponse:
    if getattr(request, "htmx", False) or not request.accepts("text/html"):
        response = HttpResponse(error.detail, content_type="text/plain; charset=utf-8", status=error.status)
    else:
        response = render(request, "web/rejection.html", {"error": error}, status=error.status)
    response.headers["Cache-Control"] = "no-store, private"  # not cached: pages show who is signed in
    return response
