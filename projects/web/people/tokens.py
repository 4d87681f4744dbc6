"""Pages that issue and revoke API tokens. A token's secret is shown only once."""

from datetime import timedelta

from django import forms
from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from projects.actor import SCOPES
from projects.selectors import all_tokens
from projects.services.people import tokens as service

LIFETIMES = (("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year"))
SCOPE_LABELS = {
    "read": "read: view",
    "write": "write: submit and cancel",
    "admin": "admin: everything my roles allow",
}


class TokenForm(Form):
    name = forms.CharField(
        label="Name", max_length=100, help_text="Name of the program that will use the token."
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(scope, SCOPE_LABELS[scope]) for scope in SCOPES],
        widget=forms.CheckboxSelectMultiple,
    )
    life = forms.ChoiceField(label="Expires after", choices=LIFETIMES)


@signed_in
@require_http_methods(["GET", "POST"])
def issue(request: Request) -> HttpResponse:
    form = TokenForm(
        request.POST or None, initial={"scopes": ["read", "write"], "life": "90"}, auto_id="token_%s"
    )
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        expiry = timezone.now() + timedelta(days=int(values["life"]))
        with form_errors(form, {"expires_at": "life"}):
            token, secret = service.issue(
                actor=request.actor, name=values["name"], scopes=values["scopes"], expires_at=expiry
            )
            context = {"token": token, "secret": secret, "back": reverse("account")}
            return page(
                request, "projects/people/token.html", context, inner="projects/people/token_body.html"
            )
    return form_page(
        request,
        form,
        title="Create token",
        label="Create token",
        back=reverse("account"),
        text="A program with this token acts with your roles, limited to the selected scopes.",
    )


@signed_in
@require_http_methods(["GET", "POST"])
def revoke(request: Request, token_id: int) -> HttpResponse:
    """Ask for confirmation (GET), or revoke the token (POST).

    Only platform admins can revoke other users' tokens.
    """
    token = all_tokens(request.actor).filter(pk=token_id, revoked_at__isnull=True).first()
    if token is None:
        raise Http404
    is_own = token.user_id == request.user.pk
    back, whose = reverse("account" if is_own else "access-tokens"), "" if is_own else f" of {token.user}"
    if request.method == "POST":
        service.revoke(actor=request.actor, token=token)
        return success_response(request, f"Token {token.name}{whose} revoked.", to=back)
    return confirm_page(
        request,
        title=f"Revoke token {token.name}{whose}?",
        warning="Programs that use this token lose access immediately.",
        label="Revoke token",
        danger=True,
        back=back,
    )
