"""REST endpoints for members."""

from datetime import datetime
from typing import Literal

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem, format_value
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import check_names
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import Body, ListQuery, Word, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.lookups import resolve_department, resolve_project, resolve_user
from projects.known_names import unknown_department_problem, unknown_project_problem, unknown_user_problem
from projects.models import Membership, Role
from projects.models.tenants import Tenant
from projects.services.people import members

RoleName = Literal["platform_admin", "department_admin", "project_admin", "member", "viewer"]
OLDEST = Order("oldest", ("id",))
BY_USERNAME = Order("username", ("username",))


class MembersQuery(ListQuery):
    project: Word | None = None
    department: Word | None = None
    user: Word | None = None


class MemberResponse(ResponseModel):
    id: int
    user: str
    role: Role
    department: str | None
    project: str | None
    created_at: datetime


class NewMember(Body):
    """Role in a project or a department. Without either, the role applies to the platform."""

    user: Text
    role: RoleName
    project: Text | None = None
    department: Text | None = None


class Members(ApiView):
    change_scope = "admin"

    @operation("List members", query=MembersQuery, page=MemberResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, MembersQuery)
        check_names(
            unknown_project_problem(self.actor, query.project),
            unknown_department_problem(self.actor, query.department),
            unknown_user_problem(self.actor, query.user),
        )
        rows = selectors.members(self.actor)
        rows = filter_by(
            rows, project__name=query.project, department__name=query.department, user__username=query.user
        )
        return Response(page(rows, query, OLDEST, map_rows(serialize_member)))

    @operation("Grant a role", body=NewMember, response=MemberResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        body = parse_body(request, NewMember)
        scope = self._find_scope(body)
        self.require("administer" if scope is None else "grant", scope)
        user = resolve_user(body.user)
        member = members.grant(actor=self.actor, user=user, role=body.role, scope=scope)
        return created_response(serialize_member(member), f"/api/v1/members/{member.pk}")

    def _find_scope(self, body: NewMember) -> Tenant | None:
        if body.project is not None and body.department is not None:
            raise Invalid(
                [
                    Problem(
                        "department",
                        "conflicts with project",
                        format_value(body.department),
                        "either project or department",
                    )
                ]
            )
        if body.project is not None:
            return resolve_project(self.actor, body.project)
        return None if body.department is None else resolve_department(self.actor, body.department)


class MemberDetail(ApiView):
    change_scope = "admin"

    @operation("Get a member", response=MemberResponse)
    def get(self, request: Request, member_id: int) -> Response:
        return Response(serialize_member(self._find_membership(member_id)))

    @operation("Revoke a role", status=204)
    def delete(self, request: Request, member_id: int) -> Response:
        members.revoke(actor=self.actor, membership=self._find_membership(member_id))
        return no_content()

    def _find_membership(self, member_id: int) -> Membership:
        membership = selectors.members(self.actor).filter(pk=member_id).first()
        if membership is None:
            raise not_found_error(ObjectKind.MEMBER, object_id=member_id)
        return membership


def serialize_member(member: Membership) -> MemberResponse:
    return MemberResponse.from_row(
        member,
        user=member.user.username,
        department=member.department.name if member.department else None,
        project=member.project.name if member.project else None,
    )
