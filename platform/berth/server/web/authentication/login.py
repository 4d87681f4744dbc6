"""Sign users in and out, with limits on failed passwords."""

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from berth.core.errors import Forbidden, RateLimited
from berth.server.api.rate_limits import count_attempt
from projects.access import is_platform_admin
from projects.actor import Actor
from projects.missing_roles import explain_missing_platform_role


class SignInForm(AuthenticationForm):
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "Wrong username or password.",
    }

    def focus_password(self) -> None:
        """After a rejection, focus the password field and make screen readers announce the error with it."""
        del self.fields["username"].widget.attrs["autofocus"]
        self.fields["password"].widget.attrs |= {
            "autofocus": True, "aria-invalid": "true", "aria-describedby": "sign-in-error",
        }  # fmt: skip


class SignIn(LoginView):
    authentication_form = SignInForm
    template_name = "web/login.html"
    redirect_authenticated_user = True

    def get_context_data(self, **context: Any) -> dict[str, Any]:
        sso = settings.BERTH_OIDC_NAME if settings.BERTH_OIDC_ISSUER else ""
        place = settings.BERTH_NAME or self.request.get_host()
        return super().get_context_data(**context, sso=sso, place=place)

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            attempt = count_attempt(request, request.POST.get("username", ""))
        except RateLimited as error:
            return self._rejection_response(error)
        response = super().post(request, *args, **kwargs)
        if is_form_accepted(response):
            attempt.record_success()
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        if isinstance(form, SignInForm) and form.non_field_errors():
            form.focus_password()
        return super().form_invalid(form)

    def _rejection_response(self, error: RateLimited) -> HttpResponse:
        form = SignInForm(self.request, initial={"username": self.request.POST.get("username", "")})
        form.focus_password()
        response = self.render_to_response(
            self.get_context_data(form=form, rejected=error.detail), status=429
        )
        response.headers["Retry-After"] = str(error.retry_after)
        return response


class SignOut(LogoutView):
    http_method_names = ["post", "options"]


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect anonymous users to the sign-in page.

    For signed-in users without access, raises Forbidden with the missing permission.
    """
    if not request.user.is_authenticated:
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"), reverse("login"))
    if not admin.site.has_permission(request):
        raise Forbidden(explain_admin_site_rejection(request.user))
    return redirect("admin:index")


def explain_admin_site_rejection(user: User) -> str:
    if not is_platform_admin(Actor.for_user(user)):
        return f"The admin site is for platform admins. {explain_missing_platform_role()}"
    return (
        "The admin site is for platform admins whose account is marked as staff, and yours is not. Another "
        "platform admin can mark it under Users on the admin site."
    )


def is_form_accepted(response: HttpResponse) -> bool:
    """Return whether the sign-in form was accepted.

    `request.user` does not answer this, because a signed-in user may try another account's password.
    """
    return response.status_code == HTTPStatus.FOUND
