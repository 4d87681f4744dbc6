"""Pages that list, set and delete secrets. Pages never contain secret values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from django import forms
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods

from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.lists.tables import Column, list_query, list_rows, requested_csv
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from pools.models import PluginSecret, PoolSecret, SecretKind
from pools.models.secret import Secret
from pools.services.secrets import SecretContent, SecretExists, delete_pool_secret, set_pool_secret
from projects.access import Action, administered_projects, may, require, visible_pools
from projects.actor import Actor
from projects.models import ProjectSecret, SecretUse, UserSecret
from projects.selectors import (
    RecordedSecret,
    outdated_workload_counts,
    personal_secrets,
    plugin_secrets,
    pool_secrets,
    project_secrets,
    projects,
    secret_use_counts,
    secret_users,
    secret_uses,
)
from projects.services.secrets import (
    delete_personal_secret,
    delete_project_secret,
    set_personal_secret,
    set_project_secret,
)

PROJECT, POOL, USER = "project", "pool", "user"
ME = "me"  # owner of the signed-in user's own secrets, in URLs and forms
PERSONAL = "Personal"
WORKLOADS_SHOWN = 10
FIELDS_OF_PROBLEMS = {"password": "value", "secret_access_key": "value", "access_key_id": "username"}
BERTHS_OWN = (SecretKind.SSH_KEY, SecretKind.S3_KEY)  # kinds of secrets that pods never receive


# After an error, a script restores the secret that the user has typed. The server never sends it back.
KEEP_TYPED_ATTRIBUTES = {"data-keep-typed": ""}


class WriteOnlyText(forms.Textarea):
    """Text area that is empty in every response, even if the form has errors."""

    def __init__(self) -> None:
        attributes = {"rows": 3, "autocomplete": "off", "spellcheck": "false", "data-secret": ""}
        super().__init__(attributes | KEEP_TYPED_ATTRIBUTES)

    def format_value(self, value: Any) -> str:
        return ""


class SecretForm(Form):
    owner = forms.ChoiceField(label="Owner", help_text="All projects can use a pool's secrets.")
    name = forms.CharField(label="Name", max_length=63, help_text="Lowercase letters, digits and hyphens.")
    value = forms.CharField(
        label="Value", widget=WriteOnlyText, strip=False, help_text="The value cannot be shown again."
    )
    # Owner, name and version of the secret that the submitted form replaces.
    replaces = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_value(self) -> str:
        """Convert the browser's line breaks to plain newlines."""
        return str(self.cleaned_data["value"]).replace("\r\n", "\n")


class RegistryForm(SecretForm):
    registry = forms.CharField(
        label="Registry", max_length=255, help_text="For example registry.example.org:5000."
    )
    username = forms.CharField(label="Username", max_length=255)
    value = forms.CharField(
        label="Password", strip=False, help_text="The password cannot be shown again.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", **KEEP_TYPED_ATTRIBUTES}),
    )  # fmt: skip
    field_order = ("owner", "name", "registry", "username", "value")


class S3KeyForm(SecretForm):
    owner = forms.ChoiceField(label="Pool", help_text="Only Berth uses the key, for the pool's S3 volumes.")
    username = forms.CharField(label="Access key ID", max_length=128)
    value = forms.CharField(
        label="Secret access key", strip=False, help_text="The key cannot be shown again.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", **KEEP_TYPED_ATTRIBUTES}),
    )  # fmt: skip
    field_order = ("owner", "name", "username", "value")


# Form and noun of each kind of secret that the pages can set.
FORMS: Mapping[str, tuple[type[SecretForm], str]] = {
    SecretKind.VALUE: (SecretForm, "secret"),
    SecretKind.REGISTRY: (RegistryForm, "registry credentials"),
    SecretKind.S3_KEY: (S3KeyForm, "S3 key"),
}


@dataclass(frozen=True, slots=True)
class SecretRow:
    row: RecordedSecret
    may_change: bool
    outdated_users: int = 0
    uses: int = 0

    @property
    def kind(self) -> str:
        if isinstance(self.row, UserSecret):
            return USER
        return PROJECT if isinstance(self.row, ProjectSecret) else POOL

    @property
    def is_plugin(self) -> bool:
        return isinstance(self.row, PluginSecret)

    @property
    def kind_label(self) -> str:
        return "Plugin" if isinstance(self.row, PluginSecret) else self.row.get_kind_display()

    @property
    def login(self) -> tuple[str, str]:
        """Registry and username. Each is empty if the kind of secret has none."""
        return ("", "") if isinstance(self.row, PluginSecret) else (self.row.registry, self.row.username)

    @property
    def last_update(self) -> tuple[datetime, str]:
        """Time of the last change, and the user who made it."""
        if isinstance(self.row, PluginSecret):
            return self.row.set_at, ""
        return self.row.updated_at, self.row.updated_by

    @property
    def has_uses(self) -> bool:
        return isinstance(self.row, PluginSecret) or self.row.kind not in BERTHS_OWN

    @property
    def has_form(self) -> bool:
        """Return whether the secret can be set on a page. SSH keys are set in the settings of their pool."""
        return not isinstance(self.row, PluginSecret) and self.row.kind in FORMS

    @property
    def owner(self) -> str:
        """Name of the project or pool, or ME for a personal secret."""
        if isinstance(self.row, UserSecret):
            return ME
        return self.row.project.name if isinstance(self.row, ProjectSecret) else self.row.pool.name

    @property
    def key(self) -> tuple[str, str, str]:
        """The secret's key in the counts of runs that received it and of outdated workloads."""
        owner = self.row.user.get_username() if isinstance(self.row, UserSecret) else self.owner
        return self.kind, owner, self.row.name


SECRETS: tuple[Column[SecretRow], ...] = (
    Column("name", "Name", lambda each: each.row.name),
    Column("owner", "Owner", lambda each: PERSONAL if each.kind == USER else f"{each.kind} {each.owner}"),
    Column("kind", "Kind", lambda each: each.kind_label),
    Column("registry", "Registry", lambda each: each.login[0]),
    Column("username", "Username", lambda each: each.login[1], is_csv_only=True),
    Column("version", "Version", lambda each: each.row.version, number=True, is_secondary=True),
    Column("uses", "Used by", lambda each: each.uses, number=True),
    Column("updated", "Updated", lambda each: each.last_update[0]),
    Column("by", "Updated by", lambda each: each.last_update[1], is_csv_only=True),
)


USES: tuple[Column[SecretUse], ...] = (
    Column("workload", "Workload", lambda each: each.workload.handle),
    Column("run", "Run", lambda each: each.run, number=True),
    Column("version", "Version", lambda each: each.version, number=True),
    Column("time", "Received", lambda each: each.at, order="id"),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    rows = list(_secret_rows(request.actor))
    counts = secret_use_counts(request.actor, [each.row for each in rows])
    rows = [replace(each, uses=counts.get(each.key, 0)) for each in rows]
    listing = list_rows(request, SECRETS, rows, file_name="secrets", default="name")
    if file := requested_csv(request, listing):
        return file
    outdated = outdated_workload_counts(request.actor, [each.row for each in listing.rows])
    secrets = [replace(each, outdated_users=outdated.get(each.key, 0)) for each in listing.rows]
    context = {
        "listing": listing,
        "secrets": secrets,
        "is_admin": may(request.actor, Action.ADMINISTER),
        "may_set_registry": bool(_secret_owners(request.actor)),
        "may_set_s3_key": bool(_pool_owners(request.actor)),
    }
    return page(request, "projects/secrets/list.html", context, inner="projects/secrets/rows.html")


@signed_in
@require_http_methods(["GET", "POST"])
def add(request: Request, kind: str) -> HttpResponse:
    """Add a secret, or replace the one that the link refers to. The user must confirm the replacement."""
    choices = _pool_owners(request.actor) if kind == SecretKind.S3_KEY else _secret_owners(request.actor)
    if kind == SecretKind.VALUE:
        choices = [(f"{USER}/{ME}", "Personal, only for your own workloads"), *choices]
    if not choices:
        require(request.actor, Action.ADMINISTER)
    form_class, noun = FORMS[kind]
    hint = "Select a pool" if kind == SecretKind.S3_KEY else "Select an owner"
    data = request.POST.copy()
    form = form_class(data or None, initial=_initial_values(request), auto_id="secret_%s")
    cast("forms.ChoiceField", form.fields["owner"]).choices = [("", hint), *choices]
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        content = SecretContent(
            values["value"], values.get("registry", ""), values.get("username", ""),
            is_s3_key=kind == SecretKind.S3_KEY,
        )  # fmt: skip
        with form_errors(form, FIELDS_OF_PROBLEMS):
            confirmed, _, version = values["replaces"].rpartition("@")
            is_confirmed = confirmed == f"{values['owner']}/{values['name']}" and version.isdecimal()
            expected = int(version) if is_confirmed else 0
            try:
                is_new = _set_secret(request.actor, values["owner"], values["name"], content, expected)
            except SecretExists as error:
                form.add_error("name", _replacement_question(error.secret))
                data["replaces"] = _replacement_token(values["owner"], error.secret)
            else:
                message = f"Secret {values['name']} {'added' if is_new else 'replaced'}."
                return success_response(
                    request, " ".join([message, *content.warnings]), to=reverse("secrets")
                )
    replaces = bool(form["replaces"].value())
    title = label = f"{'Replace' if replaces else 'Add'} {noun}"
    if replaces and "name" not in form.errors:
        title = _fix_owner_and_name(form, noun)
    text = "The current value is lost. Running pods keep it until they start again." if replaces else ""
    return form_page(request, form, title=title, label=label, back=reverse("secrets"), text=text)


def _fix_owner_and_name(form: SecretForm, noun: str) -> str:
    """Hide the owner and name of the secret to be replaced, and return a title that contains them."""
    for field in ("owner", "name"):
        form.fields[field].widget = forms.HiddenInput()
    form.fields["value"].widget.attrs["autofocus"] = True
    kind, _, owner = str(form["owner"].value()).partition("/")
    name = form["name"].value()
    return f"Replace personal {noun} {name}" if kind == USER else f"Replace {noun} {name} of {kind} {owner}"


@signed_in
@require_http_methods(["GET", "POST"])
def delete(request: Request, kind: str, owner: str, name: str) -> HttpResponse:
    secret = _find_secret(request.actor, kind, owner, name)
    if isinstance(secret, PluginSecret):
        raise Http404
    if isinstance(secret, ProjectSecret):
        require(request.actor, Action.SET_SECRETS, secret.project)
    elif isinstance(secret, PoolSecret):
        require(request.actor, Action.ADMINISTER)
    if request.method == "POST":
        if isinstance(secret, UserSecret):
            delete_personal_secret(actor=request.actor, secret=secret)
        elif isinstance(secret, ProjectSecret):
            delete_project_secret(actor=request.actor, secret=secret)
        else:
            delete_pool_secret(actor=request.actor, secret=secret)
        return success_response(request, f"Secret {name} deleted.", to=reverse("secrets"))
    users = secret_users(request.actor, secret)
    what = f"your secret {name}" if kind == USER else f"the secret {name} of {kind} {owner}"
    return confirm_page(
        request,
        title=f"Delete {what}?",
        warning="Running pods keep it. Workloads that use it cannot start again.",
        label="Delete secret",
        danger=True,
        names="Live workloads that use it" if secret.kind == SecretKind.VALUE else "",
        work=[workload.handle for workload in users[:WORKLOADS_SHOWN]],
        back=reverse("secrets"),
    )


@signed_in
@require_GET
def uses(request: Request, kind: str, owner: str, name: str) -> HttpResponse | StreamingHttpResponse:
    """Show the runs that received the secret."""
    secret = _find_secret(request.actor, kind, owner, name)
    rows = secret_uses(request.actor, secret)
    listing = list_query(request, USES, rows, list, file_name=f"secret-{name}", default="-time")
    if file := requested_csv(request, listing):
        return file
    context = {"listing": listing, "uses": listing.rows, "secret": secret, "kind": kind, "owner": owner}
    return page(request, "projects/secrets/uses.html", context, inner="projects/secrets/use_rows.html")


def _find_secret(actor: Actor, kind: str, owner: str, name: str) -> RecordedSecret:
    rows = (each for each in _secret_rows(actor) if (each.kind, each.owner) == (kind, owner))
    secret = next((each.row for each in rows if each.row.name == name), None)
    if secret is None:
        raise Http404
    return secret


def _secret_rows(actor: Actor) -> Iterator[SecretRow]:
    is_admin = may(actor, Action.ADMINISTER)
    administered = set(administered_projects(actor).values_list("pk", flat=True))
    for personal_secret in personal_secrets(actor):
        yield SecretRow(personal_secret, may_change=True)
    for secret in project_secrets(actor):
        yield SecretRow(secret, secret.project_id in administered)
    for pool_secret in pool_secrets(actor):
        yield SecretRow(pool_secret, is_admin)
    for plugin_secret in plugin_secrets(actor):
        yield SecretRow(plugin_secret, may_change=False)


def _initial_values(request: Request) -> dict[str, str]:
    """Return the form's initial values for the secret that the link refers to, or {} if it does not exist."""
    name, owner = (request.GET.get(key, "") for key in ("name", "owner"))
    for each in _secret_rows(request.actor) if name else ():
        if (each.row.name, f"{each.kind}/{each.owner}") == (name, owner):
            registry, username = each.login
            return {
                "name": name, "owner": owner, "registry": registry, "username": username,
                "replaces": _replacement_token(owner, each.row),
            }  # fmt: skip
    return {}


def _secret_owners(actor: Actor) -> list[tuple[str, str]]:
    names = administered_projects(actor).order_by("name").values_list("name", flat=True)
    choices = [(f"{PROJECT}/{name}", f"Project {name}") for name in names]
    return choices + _pool_owners(actor)


def _pool_owners(actor: Actor) -> list[tuple[str, str]]:
    if not may(actor, Action.ADMINISTER):
        return []
    return [(f"{POOL}/{pool.name}", f"Pool {pool.name}") for pool in visible_pools(actor).order_by("name")]


def _replacement_token(owner: str, secret: Secret | RecordedSecret) -> str:
    """Return the form value that confirms that this version of the secret may be replaced."""
    return f"{owner}/{secret.name}@{secret.version}"


def _replacement_question(secret: Secret) -> str:
    day = f"{secret.updated_at:%-d %b %Y}"
    return f"{secret.name} exists (set by {secret.updated_by} on {day}). Replace it?"


def _set_secret(actor: Actor, choice: str, name: str, content: SecretContent, expected_version: int) -> bool:
    """Add the secret, or replace it if it has the expected version. Return whether it is new."""
    at = timezone.now()
    kind, _, owner = choice.partition("/")
    if kind == USER:
        _, is_new = set_personal_secret(
            actor=actor, name=name, content=content, at=at, expected_version=expected_version
        )
    elif kind == PROJECT:
        project = projects(actor).get(name=owner)
        _, is_new = set_project_secret(
            actor=actor, project=project, name=name, content=content, at=at, expected_version=expected_version
        )
    else:
        pool = visible_pools(actor).get(name=owner)
        _, is_new = set_pool_secret(
            actor=actor, pool=pool, name=name, content=content, at=at, expected_version=expected_version
        )
    return is_new
