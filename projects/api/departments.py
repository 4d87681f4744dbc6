"""REST endpoints for departments."""

from datetime import datetime

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.values.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, map_rows, page
from berth.server.api.requests import Body, ListQuery, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Department
from projects.services import tenants

BY_NAME = Order("name", ("name",))


class DepartmentResponse(ResponseModel):
    name: str
    title: str
    rank: int
    reclaim_min_runtime: int | None
    preempt_min_runtime: int | None
    created_at: datetime


class NewDepartment(Body):
    name: Text
    title: Text = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class TenantChanges(Body):
    """Changes to a department or project. Omitted fields stay unchanged."""

    title: Text = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Departments(ApiView):
    change_scope = "admin"

    @operation("List departments", query=ListQuery, page=DepartmentResponse)
    def get(self, request: Request) -> Response:
        rows = selectors.departments(self.actor)
        return Response(page(rows, parse_query(request, ListQuery), BY_NAME, map_rows(serialize_department)))

    @operation("Create a department", body=NewDepartment, response=DepartmentResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        department = tenants.create_department(
            actor=self.actor, **parse_body(request, NewDepartment).explicit_values()
        )
        return created_response(serialize_department(department), f"/api/v1/departments/{department.name}")


class DepartmentDetail(ApiView):
    change_scope = "admin"

    @operation("Get a department", response=DepartmentResponse)
    def get(self, request: Request, name: str) -> Response:
        return Response(serialize_department(selectors.find_department(self.actor, name)))

    @operation("Update a department", body=TenantChanges, response=DepartmentResponse)
    def patch(self, request: Request, name: str) -> Response:
        department = selectors.find_department(self.actor, name)
        changes = parse_body(request, TenantChanges).explicit_values()
        return Response(
            serialize_department(
                tenants.edit_department(actor=self.actor, department=department, changes=changes)
            )
        )

    @operation("Delete a department without projects", status=204)
    def delete(self, request: Request, name: str) -> Response:
        tenants.delete_department(actor=self.actor, department=selectors.find_department(self.actor, name))
        return no_content()


def serialize_department(department: Department) -> DepartmentResponse:
    return DepartmentResponse.from_row(department)
