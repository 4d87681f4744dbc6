"""Pages for the user's own account."""

from django import forms
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.models import User
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError, RateLimited
from berth.server.api.rate_limits import password_attempt
from berth.server.web.faults import add_form_errors
from berth.server.web.forms import Form
from berth.server.web.lists.tables import Column, list_rows, requested_csv
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from berth.server.web.zones import user_time_zone
from projects.models import ApiToken, Membership
from projects.selectors import tokens
from projects.services.people import accounts, passwords

MAX_PASSWORD_LENGTH = 1024
THEMES = (("system", "System"), ("light", "Light"), ("dark", "Dark"))
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
            raise forms.ValidationError("The new passwords do not match. Enter the same password twice.")
        return repeated


TOKENS: tuple[Column[ApiToken], ...] = (
    Column("name", "Name", lambda row: row.name),
    Column("prefix", "Prefix", lambda row: row.prefix),
    Column("scopes", "Scopes", lambda row: ", ".join(row.scopes)),
    Column("used", "Last used", lambda row: row.last_used_at),
    Column("expires", "Expires", lambda row: row.expires_at),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    mine = list_rows(
        request, TOKENS, tokens(request.actor).filter(revoked_at__isnull=True), name="tokens",
        file_name="tokens", default="name",
    )  # fmt: skip
    if file := requested_csv(request, mine):
        return file
    user: User = request.actor.user
    context = {
        "roles": Membership.objects.filter(user=user).select_related("department", "project").order_by("pk"),
        "has_password": user.has_usable_password(),
        "tokens": mine,
        "other_sessions": len(accounts.other_sessions(user, request.session.session_key)),
        "session_ends": request.session.get_expiry_date(),
        "zone": user_time_zone(request).key,
        "themes": THEMES,
    }
    return page(request, "projects/people/account.html", context, inner="projects/people/tokens.html")


@signed_in
@require_http_methods(["GET", "POST"])
def end_other_sessions(request: Request) -> HttpResponse:
    """Ask for confirmation (GET), or sign the user out of all other browsers (POST)."""
    if request.method == "POST":
        ended = accounts.end_other_sessions(
            actor=request.actor, user=request.actor.user, current=request.session.session_key
        )
        return success_response(request, f"Other browser sessions ended: {ended}.", to=reverse("account"))
    return confirm_page(
        request,
        title="Sign out of all other browsers?",
        warning="Your other browser sessions end. This browser stays signed in, and tokens remain valid.",
        label="Sign out other sessions",
        danger=True,
        back=reverse("account"),
    )


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
                return success_response(
                    request, f"Password changed.{revoked}", to=reverse("account"), leave=True
                )
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
    """Change the password and keep this browser signed in. Raises RateLimited and the service's errors."""
    values = form.cleaned_data
    with password_attempt(request, request.user.get_username(), passwords.WrongPassword):
        password_change = passwords.change(
            actor=request.actor, current=values["current_password"], new=values["new_password"],
            revoke_tokens=values["revoke_tokens"],
        )  # fmt: skip
    update_session_auth_hash(request, password_change.user)
    return password_change
