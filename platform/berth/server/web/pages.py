"""Respond with a whole page, or with the fragment that an open page requests."""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django_htmx.middleware import HtmxDetails


class Request(HttpRequest):
    """Request with the attributes that middleware sets: acting user, permission check and htmx details."""

    acting: Any
    require: Callable[..., None]  # (action, object): raises NotFound or Forbidden
    htmx: HtmxDetails


View = Callable[..., HttpResponse | StreamingHttpResponse]
ENDED_SESSION = "Your session has ended. Sign in again, here or in another tab: what you typed is kept."


def signed_in(view: View) -> View:
    """Send anonymous users to the login page and back. Forbid caches to store personal pages."""

    @wraps(view)
    def guarded(request: Request, *args: Any, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:
        if not request.user.is_authenticated:
            if request.htmx:
                return HttpResponse(ENDED_SESSION, status=401, content_type="text/plain; charset=utf-8")
            return redirect_to_login(request.get_full_path())
        answer = view(request, *args, **kwargs)
        answer.headers.setdefault("Cache-Control", "no-store, private")
        return answer

    return guarded


def page(
    request: Request,
    template: str,
    context: Mapping[str, Any] | None = None,
    *,
    inner: str = "",
    status: int = 200,
) -> HttpResponse:
    """Return the whole page, or the fragment `inner` if an open page requests it."""
    part = inner if request.htmx and not request.htmx.history_restore_request else ""
    answer = render(request, part or template, dict(context or {}), status=status)
    patch_vary_headers(answer, ["HX-Request", "Cookie"])
    return answer


def done(request: Request, message: str, *, to: str, leave: bool = False) -> HttpResponse:
    """Respond after a change.

    An open page is notified, or goes to `to` if `leave` is set. Without scripts, redirect to `to`.
    """
    if request.htmx and not leave:
        return HttpResponse(
            status=204, headers={"HX-Trigger": json.dumps({"berth:done": {"message": message}})}
        )
    messages.success(request, message)
    if request.htmx:
        return HttpResponse(status=204, headers={"HX-Redirect": to})
    return redirect(to)
