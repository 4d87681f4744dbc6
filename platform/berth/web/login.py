"""Here people sign in and out; guessing is slowed down per person and per address."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.forms import Form
from django.http import HttpRequest, HttpResponse

from berth.api.limits import spend
from berth.core.errors import RateLimited


class SignIn(LoginView):
    template_name = "web/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            _count(request)
        except RateLimited as error:
            return self._refused(error)
        return super().post(request, *args, **kwargs)

    def _refused(self, error: RateLimited) -> HttpResponse:
        form: Form = self.get_form_class()(self.request)
        answer = self.render_to_response(self.get_context_data(form=form, refused=error.detail), status=429)
        answer.headers["Retry-After"] = str(error.retry_after)
        return answer


class SignOut(LogoutView):
    http_method_names = ["post", "options"]


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """The admin site has a form of its own: the same guesses, the same count."""
    if request.method == "POST":
        _count(request)
    return admin.site.login(request)


def _count(request: HttpRequest) -> None:
    spend("login", f"address {request.META.get('REMOTE_ADDR', '')}")
    spend("login", f"name {request.POST.get('username', '').lower()[:150]}")
