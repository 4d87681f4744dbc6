"""Pages for roles and users."""

import json
from collections.abc import Iterator
from typing import Any, cast

from django import forms
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import Forbidden
from berth.core.problems import closest_match
from berth.core.wording.words import token_to_words
from berth.server.web.faults import form_errors
from berth.server.web.forms import Form
from berth.server.web.lists.tables import list_rows, requested_csv
from berth.server.web.pages import Request, confirm_page, form_page, page, signed_in, success_response
from projects.access import Action, may
from projects.actor import Actor
from projects.models import Role
from projects.models.tenants import Tenant
from projects.selectors import (
    departments,
    find_department,
    find_grantee,
    find_project,
    members,
    projects,
)
from projects.services.people import accounts
from projects.services.people import members as service
from projects.web.people.rows import (
    ADMIN_COLUMNS,
    COLUMNS,
    PLATFORM,
    ROLE_FILTERS,
    UserWithRole,
    list_people,
    offer_deactivation_once,
)

GRANT_FIELDS = {"user": "username", "scope": "scope", "role": "role"}  # URL parameters that fill in the form
MAX_USERNAMES = 500  # maximum number of usernames that the role form suggests
DEACTIVATION = (
    "They can no longer sign in. Their browser sessions, tokens and open connections end. "
    "Their workloads keep running, and their roles are kept."
)
ACTIVATION = "They can sign in again, with the roles that they had. Their tokens stay revoked."


ROLE_CHOICES = tuple((role.value, token_to_words(role.value)) for role in Role)
ROLES_BY_SCOPE = {
    PLATFORM: (Role.PLATFORM_ADMIN,),
    "department": service.DEPARTMENT_ROLES,
    "project": service.PROJECT_ROLES,
}
ROLE_PERMISSIONS = (
    (Role.VIEWER, "sees workloads, queues and fair shares of a project or department"),
    (Role.MEMBER, "also submits workloads, stops their own workloads and saves templates"),
    (Role.PROJECT_ADMIN, "also stops all workloads of the project and manages its members and secrets"),
    (Role.DEPARTMENT_ADMIN, "also manages the department's projects, their quotas, budgets and members"),
    (Role.PLATFORM_ADMIN, "also manages node pools, users, departments, and their quotas and budgets"),
)


class RoleForm(Form):
    """Base class of the forms with a scope and a role. The role field offers the roles of the scope."""

    no_scope, no_role = "Choose a scope", "Choose a role"

    def __init__(self, *args: Any, scopes: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scope, role = (cast("forms.ChoiceField", self.fields[name]) for name in ("scope", "role"))
        scope.choices = scopes if len(scopes) == 1 and scope.required else [("", self.no_scope), *scopes]
        # The choices of the field are all roles, so that `clean` reports a role of another scope.
        role.choices = [("", self.no_role), *ROLE_CHOICES]
        selected = str(self["scope"].value() or scope.choices[0][0])
        role.widget.choices = role_choices(selected, self.no_role)
        target = f"#{self['role'].auto_id}"
        scope.widget.attrs |= {
            "hx-get": reverse("role-options"),
            "hx-include": target,
            "hx-vals": json.dumps({"placeholder": self.no_role}),
            "hx-target": target,
            "hx-swap": "innerHTML",
            "hx-trigger": "change",
        }

    def clean(self) -> dict[str, Any]:
        scope, role = self.cleaned_data.get("scope"), self.cleaned_data.get("role")
        if scope and role and role not in (allowed := dict(role_choices(scope))):
            titles, kind = list(allowed.values()), scope.partition(":")[0]
            advice = " or ".join(each for each in (", ".join(titles[:-1]), titles[-1]) if each)
            where = "the entire platform" if kind == PLATFORM else f"a {kind}"
            title = dict(ROLE_CHOICES)[role]
            self.add_error("role", f"{title} is not available for {where}. Choose {advice}.")
        return self.cleaned_data


class GrantForm(RoleForm):
    username = forms.CharField(
        label="Username", max_length=150,
        widget=forms.TextInput(attrs={"list": "usernames", "autocomplete": "off"}),
    )  # fmt: skip
    scope = forms.ChoiceField(label="Scope")
    role = forms.ChoiceField(label="Role")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "grant_%s", **kwargs})


class UserForm(RoleForm):
    """Form for a new user and, optionally, their first role."""

    no_scope, no_role = "No scope yet", "No role yet"
    username = forms.CharField(label="Username", max_length=150)
    email = forms.EmailField(label="Email", required=False)
    password = forms.CharField(
        label="Initial password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 10 characters.",
    )
    scope = forms.ChoiceField(label="Scope", required=False)
    role = forms.ChoiceField(label="Role", required=False)

    def clean(self) -> dict[str, Any]:
        scope, role = self.cleaned_data.get("scope"), self.cleaned_data.get("role")
        if scope and not role:
            self.add_error("role", "Choose a role in this scope.")
        if role and not scope:
            self.add_error("scope", "Choose the scope of this role.")
        return super().clean()


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    role = request.GET.get("people-role", "")
    role = role if role in dict(ROLE_FILTERS) else ""
    administers = may(request.actor, Action.ADMINISTER)
    columns = ADMIN_COLUMNS if administers else COLUMNS
    people_rows = [row for row in list_people(request.actor) if role in ("", row.role)]
    people = list_rows(request, columns, people_rows, name="people", file_name="people", default="user")
    if file := requested_csv(request, people):
        return file
    context = {
        "people": people,
        "members": [
            (row, row.membership is not None and _may_revoke(request, row))
            for row in offer_deactivation_once(people.rows)
        ],
        "role": role,
        "role_filters": ROLE_FILTERS if administers else ROLE_FILTERS[: len(Role)],
        "is_filtered": bool(role or people.search),
        "may_grant": next(_iter_grantable_scopes(request.actor), None) is not None,
        "may_add_people": administers,
    }
    return page(request, "projects/people/access.html", context, inner="projects/people/members.html")


@signed_in
@require_http_methods(["GET", "POST"])
def grant(request: Request) -> HttpResponse:
    scopes = grantable_scopes(request.actor)
    if not scopes:
        raise Forbidden("Your role does not allow you to change members. Ask an admin for a role.")
    initial = {field: request.GET.get(key, "") for key, field in GRANT_FIELDS.items()}
    form = GrantForm(request.POST or None, scopes=scopes, initial=initial)
    usernames = sorted({row.user.username for row in list_people(request.actor)})[:MAX_USERNAMES]
    if request.method == "POST" and form.is_valid():
        person = find_grantee(form.cleaned_data["username"])
        if person is None:
            match = closest_match(form.cleaned_data["username"], usernames)
            advice = f"Did you mean {match}?" if match else "Enter the exact username."
            form.add_error("username", f"No user has this name. {advice}")
        else:
            with form_errors(form, {"user": "username"}):
                _grant_from_form(request.actor, person, form.cleaned_data)
                return success_response(request, f"Role granted to {person.username}.", to=reverse("access"))
    title = "Change role" if initial["role"] else "Grant role"
    return _form_response(
        request, form, title, "The new role replaces the user's current role in the same scope.",
        result_template="projects/people/usernames.html", usernames=usernames,
        role_permissions=_role_permissions(),
    )  # fmt: skip


@signed_in
@require_GET
def role_options(request: Request) -> HttpResponse:
    """Return the options of the role field for a scope."""
    placeholder = request.GET.get("placeholder", "")[:40]
    choices = role_choices(request.GET.get("scope", ""), placeholder)
    context = {"choices": choices, "selected": request.GET.get("role", "")}
    return render(request, "projects/people/role_options.html", context)


@signed_in
@require_http_methods(["GET", "POST"])
def revoke(request: Request, membership_id: int) -> HttpResponse:
    membership = members(request.actor).filter(pk=membership_id).first()
    if membership is None:
        raise Http404
    if request.method == "POST":
        service.revoke(actor=request.actor, membership=membership)
        return success_response(
            request, f"Role revoked from {membership.user.username}.", to=reverse("access")
        )
    scope_name = membership.project or membership.department or "Berth"
    return confirm_page(
        request,
        title=f"Revoke the role from {membership.user.username}?",
        danger=True,
        label="Revoke role",
        warning=f"{token_to_words(membership.role)} of {scope_name}. Their workloads keep running.",
        back=reverse("access"),
    )


@signed_in
@require_http_methods(["GET", "POST"])
def add_user(request: Request) -> HttpResponse:
    if not may(request.actor, Action.ADMINISTER):
        raise Forbidden("Only platform admins can add users. Ask a platform admin.")
    form = UserForm(request.POST or None, auto_id="person_%s", scopes=grantable_scopes(request.actor))
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        with form_errors(form), transaction.atomic():
            account = {name: values[name] for name in ("username", "email", "password")}
            person = service.create_user(actor=request.actor, **account)
            if values["role"]:
                _grant_from_form(request.actor, person, values)
            return success_response(request, f"User {person.username} created.", to=reverse("access"))
    return _form_response(
        request, form, "Add user", "Without a role, the user sees nothing. You can also grant roles later.",
        result_template="projects/people/roles.html", role_permissions=_role_permissions(),
    )  # fmt: skip


@signed_in
@require_http_methods(["GET", "POST"])
def set_active(request: Request, user_id: str, action_name: str) -> HttpResponse:
    """Ask for confirmation (GET), or deactivate or activate a user (POST)."""
    if not may(request.actor, Action.ADMINISTER):
        raise Forbidden("Only platform admins can deactivate users. Ask a platform admin.")
    user = get_object_or_404(User, pk=user_id)
    if request.method == "POST":
        change = accounts.deactivate if action_name == "deactivate" else accounts.activate
        change(actor=request.actor, user=user)
        return success_response(request, f"User {user.username} {action_name}d.", to=reverse("access"))
    return confirm_page(
        request,
        title=f"{action_name.capitalize()} {user.username}?",
        warning=DEACTIVATION if action_name == "deactivate" else ACTIVATION,
        label=f"{action_name.capitalize()} user",
        danger=action_name == "deactivate",
        back=reverse("access"),
    )


def role_choices(scope: str, placeholder: str = "") -> list[tuple[str, str]]:
    """Return the roles of a scope, such as "project:vision", with their titles.

    The placeholder comes first, unless the scope has only one role. Without a scope, return all roles.
    """
    roles = ROLES_BY_SCOPE.get(scope.partition(":")[0], tuple(Role))
    choices = [(role, title) for role, title in ROLE_CHOICES if role in roles]
    return [("", placeholder), *choices] if placeholder and len(choices) > 1 else choices


def grantable_scopes(actor: Actor) -> list[tuple[str, str]]:
    """Return the key and title of each scope in which the user may grant roles."""
    return list(_iter_grantable_scopes(actor))


def _iter_grantable_scopes(actor: Actor) -> Iterator[tuple[str, str]]:
    if may(actor, Action.ADMINISTER):
        yield PLATFORM, "The entire platform"
    granted_departments = set()
    for department in departments(actor):
        if may(actor, Action.GRANT, department):
            granted_departments.add(department.pk)
            yield f"department:{department.name}", f"{department.name} (department)"
    for project in projects(actor):
        if project.department_id in granted_departments or may(actor, Action.GRANT, project):
            yield f"project:{project.name}", f"{project.name} (project in {project.department.name})"


def _grant_from_form(actor: Actor, person: User, values: dict[str, Any]) -> None:
    kind, _, name = values["scope"].partition(":")
    scope: Tenant | None = None
    if kind == "department":
        scope = find_department(actor, name)
    elif kind == "project":
        scope = find_project(actor, name)
    service.grant(actor=actor, user=person, role=values["role"], scope=scope)


def _role_permissions() -> list[tuple[str, str]]:
    return [(token_to_words(role.value), permissions) for role, permissions in ROLE_PERMISSIONS]


def _form_response(request: Request, form: forms.Form, title: str, text: str, **more: Any) -> HttpResponse:
    return form_page(request, form, title=title, label=title, text=text, back=reverse("access"), **more)


def _may_revoke(request: Request, row: UserWithRole) -> bool:
    membership = row.membership
    assert membership is not None
    action = Action.GRANT if membership.project_id or membership.department_id else Action.ADMINISTER
    return may(request.actor, action, membership)
