"""Sign users in and out, with limits on failed passwords."""

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.forms import Form
from django.http import HttpRequest, HttpResponse

from berth.core.errors import RateLimited
from berth.server.api.rate_limits import count_attempt


class SignIn(LoginView):
    template_name = "web/login.html"
    redirect_authenticated_user = True

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        sso = settings.BERTH_OIDC_NAME if settings.BERTH_OIDC_ISSUER else ""
        return super().get_context_data(**context, sso=sso)

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            attempt = count_attempt(request, request.POST.get("username", ""))
        except RateLimited as error:
            return self._respond_refused(error)
        response = super().post(request, *args, **kwargs)
        if is_form_accepted(response):
            attempt.succeeded()
        return response

    def _respond_refused(self, error: RateLimited) -> HttpResponse:
        form: Form = self.get_form_class()(self.request)
        response = self.render_to_response(self.get_context_data(form=form, refused=error.detail), status=429)
        response.headers["Retry-After"] = str(error.retry_after)
        return response


class SignOut(LogoutView):
    http_method_names = ["post", "options"]


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Handle the admin site's sign-in form, with the same limits. Raises RateLimited."""
    if request.method != "POST":
        return admin.site.login(request)
    attempt = count_attempt(request, request.POST.get("username", ""))
    response = admin.site.login(request)
    if is_form_accepted(response):
        attempt.succeeded()
    return response


def is_form_accepted(response: HttpResponse) -> bool:
    """Return whether the sign-in form was accepted.

    `request.user` does not indicate this, because a signed-in user may try another account's password.
    """
    return response.status_code == HTTPStatus.FOUND
