"""Pages for the user's own account."""

from django import forms
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError, RateLimited
from berth.server.api.rate_limits import password_attempt
from berth.server.web.faults import add_form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, done, form_page, page, signed_in
from projects.models import Membership, Role
from projects.selectors import tokens
from projects.services.people import passwords

MAX_PASSWORD_LENGTH = 1024
CHANGE_HELP = (
    "Changing your password ends your other browser sessions and revokes tokens issued by berth login."
)


def _password_field(label: str, autocomplete: str, help_text: str = "") -> forms.CharField:
    attributes = {"autocomplete": autocomplete}
    return forms.CharField(
        label=label, max_length=MAX_PASSWORD_LENGTH, strip=False, help_text=help_text,
        widget=forms.PasswordInput(attrs=attributes),
    )  # fmt: skip


class PasswordForm(Form):
    current_password = _password_field("Current password", "current-password")
    new_password = _password_field("New password", "new-password", "At least 10 characters")
    repeated = _password_field("Confirm new password", "new-password")
    revoke_tokens = forms.BooleanField(label="Also revoke all my other tokens", required=False)

    def clean_repeated(self) -> str:
        repeated: str = self.cleaned_data["repeated"]
        if repeated != self.cleaned_data.get("new_password", repeated):
            raise forms.ValidationError("The new passwords do not match.")
        return repeated


@signed_in
@require_GET
def index(request: Request) -> HttpResponse:
    user: User = request.actor.user
    roles = Membership.objects.filter(user=user).select_related("department", "project")
    live = tokens(request.actor).filter(revoked_at__isnull=True).exclude(expires_at__lte=timezone.now())
    context = {
        "roles": roles.order_by("pk"),
        # A superuser is a platform admin without a stored role.
        "superuser": user.is_superuser and not roles.filter(role=Role.PLATFORM_ADMIN).exists(),
        "has_password": user.has_usable_password(),
        "tokens": live.count(),
    }
    return page(request, "projects/people/account.html", context)


@sensitive_post_parameters()
@signed_in
@require_http_methods(["GET", "POST"])
def password(request: Request) -> HttpResponse:
    form = PasswordForm(request.POST or None, auto_id="password_%s")
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                password_change = _change_password(request, form)
            except RateLimited as error:
                form.add_error(None, f"Too many attempts. {error.detail}")
                status = error.status
            except BerthError as error:
                add_form_errors(form, error)
            else:
                revoked = f" Tokens revoked: {password_change.revoked}." if password_change.revoked else ""
                return done(request, f"Password changed.{revoked}", to=reverse("account"), leave=True)
    return form_page(
        request,
        form,
        title="Change password",
        label="Change password",
        text=CHANGE_HELP,
        back=reverse("account"),
        status=status,
    )


def _change_password(request: Request, form: PasswordForm) -> passwords.PasswordChange:
    """Change the password and keep this browser signed in.

    Raises RateLimited and the service's errors.
    """
    values = form.cleaned_data
    with password_attempt(request, request.user.get_username(), passwords.WrongPassword):
        password_change = passwords.change(
            actor=request.actor, current=values["current_password"], new=values["new_password"],
            revoke_tokens=values["revoke_tokens"],
        )  # fmt: skip
    update_session_auth_hash(request, password_change.user)
    return password_change
