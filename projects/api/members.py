"""REST endpoints of members and users."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Forbidden, Invalid, NotFound
from berth.core.problems import Problem, shown
from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, Word, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import administers_any
from projects.api.lookups import department_in_body, project_in_body, user_in_body
from projects.models import Department, Membership, Project, Role
from projects.services.people import members

RoleWord = Literal["platform_admin", "department_admin", "project_admin", "member", "viewer"]
OLDEST = Order("oldest", ("id",))
BY_USERNAME = Order("username", ("username",))


class MembersQuery(ListQuery):
    project: Word | None = None
    department: Word | None = None
    user: Word | None = None


class UsersQuery(ListQuery):
    search: Word | None = None


class MemberAnswer(Answer):
    id: int
    user: str
    role: Role
    department: str | None
    project: str | None
    created_at: datetime


class NewMember(Body):
    """A role in a project, in a department, or (with neither) on the whole platform."""

    user: Text
    role: RoleWord
    project: Text | None = None
    department: Text | None = None


class UserAnswer(Answer):
    username: str
    email: str
    active: bool


class NewUser(Body):
    username: Text
    email: Text = ""
    password: Text | None = None


class Members(ApiView):
    change_scope = "admin"

    @operation("List members", query=MembersQuery, page=MemberAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, MembersQuery)
        rows = selectors.members(self.acting)
        if query.project is not None:
            rows = rows.filter(project__name=query.project)
        if query.department is not None:
            rows = rows.filter(department__name=query.department)
        if query.user is not None:
            rows = rows.filter(user__username=query.user)
        return Response(page(rows, query, OLDEST, presented))

    @operation("Grant a role", body=NewMember, answer=MemberAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        body = parse_body(request, NewMember)
        scope = self._scope(body)
        self.require("administer" if scope is None else "grant", scope)
        user = user_in_body(body.user)
        member = members.grant(acting=self.acting, user=user, role=body.role, scope=scope)
        return created(answer(member), f"/api/v1/members/{member.pk}")

    def _scope(self, body: NewMember) -> Department | Project | None:
        if body.project is not None and body.department is not None:
            raise Invalid(
                [Problem("department", "conflicts with project", shown(body.department), "one of the two")]
            )
        if body.project is not None:
            return project_in_body(self.acting, body.project)
        return None if body.department is None else department_in_body(self.acting, body.department)


class OneMember(ApiView):
    change_scope = "admin"

    @operation("Get a member", answer=MemberAnswer)
    def get(self, request: Request, member_id: int) -> Response:
        no_query(request)
        return Response(answer(self._membership(member_id)))

    @operation("Revoke a role", status=204)
    def delete(self, request: Request, member_id: int) -> Response:
        no_query(request)
        members.revoke(acting=self.acting, membership=self._membership(member_id))
        return no_content()

    def _membership(self, member_id: int) -> Membership:
        membership = selectors.members(self.acting).filter(pk=member_id).first()
        if membership is None:
            raise NotFound("No member with this id.")
        return membership


class Users(ApiView):
    change_scope = "admin"

    @operation("List users that you administer", query=UsersQuery, page=UserAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, UsersQuery)
        rows = selectors.users(self.acting)
        if administers_any(self.acting):
            rows = _searched(rows, query.search)
            return Response(
                page(rows, query, BY_USERNAME, lambda users: [user_answer(user) for user in users])
            )
        raise Forbidden("Only admins of a project, a department or the platform may list users.")

    @operation("Create a user", body=NewUser, answer=UserAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        user = members.create_user(acting=self.acting, **parse_body(request, NewUser).explicit_values())
        return created(user_answer(user), f"/api/v1/users?search={user.username}")


def _searched(rows: Any, text: str | None) -> Any:
    if text is None:
        return rows
    return rows.filter(Q(username__icontains=text) | Q(email__icontains=text))


def answer(member: Membership) -> MemberAnswer:
    return MemberAnswer(
        id=member.pk,
        user=member.user.username,
        role=Role(member.role),
        department=member.department.name if member.department else None,
        project=member.project.name if member.project else None,
        created_at=member.created_at,
    )


def presented(rows: Sequence[Membership]) -> list[Any]:
    return [answer(row) for row in rows]


def user_answer(user: User) -> UserAnswer:
    return UserAnswer(username=user.username, email=user.email, active=user.is_active)
