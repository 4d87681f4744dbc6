"""Respond with an entire page, or with the fragment that an open page requested."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django_htmx.middleware import HtmxDetails


class Request(HttpRequest):
    """Request with the attributes set by middleware: acting user, permissions and htmx details."""

    actor: Any
    require: Callable[..., None]  # checks that the user may perform an action on an object
    htmx: HtmxDetails
    may_submit: bool  # whether the user may submit workloads; set when first needed


View = Callable[..., HttpResponse | StreamingHttpResponse]
SESSION_ENDED_MESSAGE = (
    "Your session has ended. Sign in again, here or in another tab. Your input is preserved."
)


def signed_in(view: View) -> View:
    """Redirect anonymous users to the login page, and keep personal pages out of caches.

    Scripts get status 401 instead of a redirect.
    """

    @wraps(view)
    def guarded(request: Request, *args: Any, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:
        if not request.user.is_authenticated:
            if request.htmx:
                return HttpResponse(
                    SESSION_ENDED_MESSAGE, status=401, content_type="text/plain; charset=utf-8"
                )
            return redirect_to_login(request.get_full_path())
        response = view(request, *args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-store, private")
        return response

    return guarded


def page(
    request: Request,
    template: str,
    context: Mapping[str, Any] | None = None,
    *,
    inner: str = "",
    status: int = 200,
) -> HttpResponse:
    """Return the entire page, or the fragment `inner` if an open page requests it."""
    part = inner if request.htmx and not request.htmx.history_restore_request else ""
    response = render(request, part or template, dict(context or {}), status=status)
    patch_vary_headers(response, ["HX-Request", "Cookie"])
    return response


def form_page(
    request: Request, form: Form, *, title: str, label: str, back: str, status: int | None = None, **more: Any
) -> HttpResponse:
    """Show a form with its errors.

    `label` is the button text, `back` is the cancel link's URL, and `danger` marks the change as destructive.
    """
    context = {"form": form, "title": title, "label": label, "back": back, "post_to": request.path, **more}
    status = status or (422 if form.errors else 200)
    return page(request, "web/form.html", context, inner="web/form_body.html", status=status)


def confirm_page(
    request: Request,
    *,
    title: str,
    warning: str,
    label: str,
    back: str,
    danger: bool = False,
    form: Form | None = None,
    **more: Any,
) -> HttpResponse:
    """Ask the user to confirm a change. `form` may ask for details."""
    context = {
        "title": title, "warning": warning, "label": label, "back": back, "danger": danger, "form": form,
        "post_to": request.path, **more,
    }  # fmt: skip
    status = 422 if form and form.errors else 200
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html", status=status)


def render_refusal(
    request: Request,
    *,
    title: str,
    text: str,
    back: str,
    links: Sequence[tuple[str, str]] = (),
    action: tuple[str, str] | None = None,
    danger: bool = False,
    crumbs: Sequence[tuple[str, str]] = (),
    status: int = 200,
) -> HttpResponse:
    """Explain why an action is not possible.

    `links` are (label, URL) pairs of the objects that prevent the action. `action` is a button that resolves
    the problem, and `danger` marks it as destructive.
    """
    context = {
        "title": title, "text": text, "back": back, "links": links, "action": action, "danger": danger,
        "crumbs": crumbs,
    }  # fmt: skip
    return page(request, "web/refusal.html", context, inner="web/refusal_body.html", status=status)


def success_response(
    request: Request, message: str, *, to: str, leave: bool = False, warns: bool = False
) -> HttpResponse:
    """Respond to a successful change.

    An open page shows the message. The browser navigates to `to` if `leave` is set, if the form has its own
    page, or if scripts are disabled. Set `warns` if the message contains warnings.
    """
    is_own_page = urlsplit(request.htmx.current_url or "").path == request.path
    if request.htmx and not leave and not is_own_page:
        return HttpResponse(
            status=204,
            headers={"HX-Trigger": json.dumps({"berth:done": {"message": message, "warns": warns}})},
        )
    messages.add_message(request, messages.WARNING if warns else messages.SUCCESS, message)
    return open_url(request, to)


def open_url(request: Request, to: str) -> HttpResponse:
    """Make the browser navigate to a page, even if a script on an open page sent the request."""
    return HttpResponse(status=204, headers={"HX-Redirect": to}) if request.htmx else redirect(to)


def redirect_without_slash(request: HttpRequest, path: str) -> HttpResponse:
    """Redirect to the same URL without the final slash. Raises Http404 unless the method is GET or HEAD."""
    if request.method not in ("GET", "HEAD"):
        raise Http404
    query = request.META["QUERY_STRING"]
    return redirect(f"/{path}?{query}" if query else f"/{path}")
