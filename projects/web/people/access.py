"""Pages of roles and users."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from berth.core.errors import BerthError, Forbidden
from berth.server.web.faults import take_faults
from berth.server.web.lists.tables import Column, exported, list_rows
from berth.server.web.pages import Request, done, page, signed_in
from projects.access import (
    Action,
    administered_departments,
    administered_projects,
    is_platform_admin,
    may,
)
from projects.acting import Acting
from projects.models import ApiToken, Department, Membership, Project, Role
from projects.selectors import (
    departments,
    find_department,
    find_grantee,
    find_project,
    members,
    projects,
    tokens,
)
from projects.services.people import members as service

PLATFORM = "platform"


class GrantForm(forms.Form):
    username = forms.CharField(label="User name", max_length=150)
    scope = forms.ChoiceField(label="Scope")
    role = forms.ChoiceField(label="Role", choices=Role.choices)

    def __init__(self, *args: Any, scopes: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "grant_%s", **kwargs})
        choice = self.fields["scope"]
        assert isinstance(choice, forms.ChoiceField)
        choice.choices = scopes


class PersonForm(forms.Form):
    username = forms.CharField(label="User name", max_length=150)
    email = forms.EmailField(label="E-mail", required=False)
    password = forms.CharField(
        label="Initial password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 10 characters",
    )


@dataclass(frozen=True, slots=True)
class Member:
    row: Membership
    email: str  # empty unless the user administers the scope of the role


MEMBERS: tuple[Column[Member], ...] = (
    Column("user", "User", lambda member: member.row.user.username),
    Column("mail", "E-mail", lambda member: member.email, in_file=True),
    Column("role", "Role", lambda member: member.row.get_role_display()),
    Column("scope", "Scope", lambda member: _place_in_words(member.row)),
    Column("since", "Since", lambda member: member.row.created_at),
)
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
    rows = _with_emails(request.acting, sorted(members(request.acting).order_by("pk"), key=_place))
    people = list_rows(request, MEMBERS, rows, name="people", file_name="people", default="scope")
    mine = list_rows(
        request, TOKENS, tokens(request.acting).filter(revoked_at__isnull=True), name="tokens",
        file_name="tokens", default="name",
    )  # fmt: skip
    if file := exported(request, people, mine):
        return file
    context = {
        "people": people,
        "members": [
            (member.row, member.email, may(request.acting, _required_action(member.row), member.row))
            for member in people.rows
        ],
        "tokens": mine,
        "may_grant": next(_grantable(request.acting), None) is not None,
        "may_add_people": may(request.acting, Action.ADMINISTER),
    }
    return page(request, "projects/people/access.html", context, inner="projects/people/members.html")


@signed_in
@require_http_methods(["GET", "POST"])
def grant(request: Request) -> HttpResponse:
    scopes = grantable(request.acting)
    if not scopes:
        raise Forbidden("Your role does not allow you to change members.")
    form = GrantForm(request.POST or None, scopes=scopes)
    if request.method == "POST" and form.is_valid():
        person = find_grantee(form.cleaned_data["username"])
        if person is None:
            form.add_error("username", "No user has this name. Enter the exact user name.")
        else:
            try:
                _grant(request.acting, person, form.cleaned_data)
            except BerthError as error:
                take_faults(form, error, {"user": "username"})
            else:
                return done(request, f"Role granted to {person.username}.", to=reverse("access"))
    return _form(request, form, "Grant role", "It replaces the user's current role in the same scope.")


@signed_in
@require_http_methods(["GET", "POST"])
def revoke(request: Request, membership_id: int) -> HttpResponse:
    membership = members(request.acting).filter(pk=membership_id).first()
    if membership is None:
        raise Http404
    if request.method == "POST":
        service.revoke(acting=request.acting, membership=membership)
        return done(request, f"Role of {membership.user.username} revoked.", to=reverse("access"))
    place = membership.project or membership.department or "Berth"
    context = {
        "title": f"Revoke the role of {membership.user.username}?",
        "danger": True,
        "label": "Revoke role",
        "warning": f"{membership.get_role_display()} of {place}. Their workloads keep running.",
        "post_to": request.path,
        "back": reverse("access"),
    }
    return page(request, "web/confirm.html", context, inner="web/confirm_form.html")


@signed_in
@require_http_methods(["GET", "POST"])
def add_user(request: Request) -> HttpResponse:
    if not may(request.acting, Action.ADMINISTER):
        raise Forbidden("Only platform admins can add users.")
    form = PersonForm(request.POST or None, auto_id="person_%s")
    if request.method == "POST" and form.is_valid():
        try:
            person = service.create_user(acting=request.acting, **form.cleaned_data)
        except BerthError as error:
            take_faults(form, error)
        else:
            return done(request, f"User {person.username} created.", to=reverse("access"))
    return _form(request, form, "Add user", "Users see nothing until they are granted a role.")


def grantable(acting: Acting) -> list[tuple[str, str]]:
    """Return the key and title of every scope in which the user may grant roles."""
    return list(_grantable(acting))


def _grantable(acting: Acting) -> Iterator[tuple[str, str]]:
    if may(acting, Action.ADMINISTER):
        yield PLATFORM, "The whole platform"
    whole = set()
    for department in departments(acting):
        if may(acting, Action.GRANT, department):
            whole.add(department.pk)
            yield f"department:{department.name}", f"{department.name} (department)"
    for project in projects(acting):
        if project.department_id in whole or may(acting, Action.GRANT, project):
            yield f"project:{project.name}", f"{project.department.name} / {project.name}"


def _grant(acting: Acting, person: User, values: dict[str, Any]) -> None:
    kind, _, name = values["scope"].partition(":")
    scope: Department | Project | None = None
    if kind == "department":
        scope = find_department(acting, name)
    elif kind == "project":
        scope = find_project(acting, name)
    service.grant(acting=acting, user=person, role=values["role"], scope=scope)


def _form(request: Request, form: forms.Form, title: str, text: str) -> HttpResponse:
    context = {
        "form": form,
        "title": title,
        "label": title,
        "text": text,
        "post_to": request.path,
        "back": reverse("access"),
    }
    status = 422 if form.is_bound else 200
    return page(request, "web/form.html", context, inner="web/form_body.html", status=status)


def _with_emails(acting: Acting, rows: Iterable[Membership]) -> list[Member]:
    everywhere = is_platform_admin(acting)
    in_projects = set(administered_projects(acting).values_list("pk", flat=True))
    in_departments = set(administered_departments(acting).values_list("pk", flat=True))

    def email_of(row: Membership) -> str:
        administers = everywhere or row.project_id in in_projects or row.department_id in in_departments
        return row.user.email if administers else ""

    return [Member(row, email_of(row)) for row in rows]


def _place_in_words(row: Membership) -> str:
    return " / ".join(filter(None, _place(row)[:2])) or "The whole platform"


def _required_action(row: Membership) -> Action:
    return Action.GRANT if row.project_id or row.department_id else Action.ADMINISTER


def _place(row: Membership) -> tuple[str, str, str, int]:
    """Return a sort key: the platform first, then each department followed by its projects."""
    department = row.project.department.name if row.project else row.department.name if row.department else ""
    return department, row.project.name if row.project else "", row.user.username, row.pk
