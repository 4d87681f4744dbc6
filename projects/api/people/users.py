"""REST endpoints for user accounts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Forbidden
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import NameColumn
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, Word, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.access import has_admin_role
from projects.api.people.members import MemberResponse, serialize_member
from projects.models.workloads import LIVE_PHASES
from projects.services.people import accounts, members

BY_USERNAME = Order("username", ("username",))


class UsersQuery(ListQuery):
    search: Word | None = None
    active: bool | None = None


class UserResponse(ResponseModel):
    username: str
    email: str
    active: bool = Field(description="False for a deactivated account, which cannot sign in.")


class UserDetailResponse(UserResponse):
    created_at: datetime
    roles: list[MemberResponse] = Field(description="Roles that you may see.")
    live_workloads: int = Field(
        description="Live workloads of the user in your projects, which keep running after a deactivation."
    )


class DeactivationResponse(UserDetailResponse):
    revoked_tokens: int
    ended_sessions: int


class NewUser(Body):
    username: Text
    email: Text = ""
    password: Text | None = None


class Users(ApiView):
    change_scope = "admin"

    @operation("List the users that you administer", query=UsersQuery, page=UserResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, UsersQuery)
        if not has_admin_role(self.actor):
            raise Forbidden(
                "Only admins of a project, a department or the platform may list users. "
                "Ask one of them for a role."
            )
        rows = _search_users(selectors.users(self.actor), query)
        return Response(page(rows, query, BY_USERNAME, _serialize_users))

    @operation("Create a user", body=NewUser, response=UserResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        user = members.create_user(actor=self.actor, **parse_body(request, NewUser).explicit_values())
        return created_response(_serialize_users([user])[0], f"/api/v1/users/{user.username}")


class UserView(ApiView):
    """Base view for one user account, visible to admins of any scope where the user has a role."""

    change_scope = "admin"

    def find_user(self, username: str) -> User:
        rows = selectors.users(self.actor)
        user = rows.filter(username=username).first()
        if user is None:
            raise not_found_error(ObjectKind.USER, name=username, visible=NameColumn(rows, "username").list())
        return user

    def describe(self, user: User) -> dict[str, Any]:
        roles = selectors.members(self.actor).filter(user=user).order_by("pk")
        live = selectors.workloads(self.actor).filter(submitted_by=user, phase__in=LIVE_PHASES)
        return {
            "username": user.username,
            "email": user.email,
            "active": user.is_active,
            "created_at": user.date_joined,
            "roles": [serialize_member(role) for role in roles],
            "live_workloads": live.aggregate(n=selectors.workload_count())["n"],
        }


class UserDetail(UserView):
    @operation("Get a user with their roles", response=UserDetailResponse)
    def get(self, request: Request, username: str) -> Response:
        return Response(UserDetailResponse(**self.describe(self.find_user(username))))


class DeactivateUser(UserView):
    @operation(
        "Deactivate a user: end their sessions, tokens and open connections, and keep their workloads",
        response=DeactivationResponse,
    )
    @idempotent
    def post(self, request: Request, username: str) -> Response:
        result = accounts.deactivate(actor=self.actor, user=self.find_user(username))
        return Response(
            DeactivationResponse(
                revoked_tokens=result.revoked_tokens,
                ended_sessions=result.ended_sessions,
                **self.describe(result.user),
            )
        )


class ActivateUser(UserView):
    @operation("Activate a deactivated user", response=UserDetailResponse)
    @idempotent
    def post(self, request: Request, username: str) -> Response:
        user = accounts.activate(actor=self.actor, user=self.find_user(username))
        return Response(UserDetailResponse(**self.describe(user)))


def _search_users(rows: QuerySet[User], query: UsersQuery) -> QuerySet[User]:
    if query.active is not None:
        rows = rows.filter(is_active=query.active)
    if query.search is None:
        return rows
    return rows.filter(Q(username__icontains=query.search) | Q(email__icontains=query.search))


def _serialize_users(rows: Sequence[User]) -> list[Any]:
    return [UserResponse(username=row.username, email=row.email, active=row.is_active) for row in rows]
