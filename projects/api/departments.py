"""REST endpoints of departments."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Department
from projects.services import tenants

BY_NAME = Order("name", ("name",))


class DepartmentAnswer(Answer):
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
    """Changes to a department or a project; missing keys stay unchanged."""

    title: Text = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Departments(ApiView):
    change_scope = "admin"

    @operation("List departments", query=ListQuery, page=DepartmentAnswer)
    def get(self, request: Request) -> Response:
        rows = selectors.departments(self.acting)
        return Response(page(rows, parse_query(request, ListQuery), BY_NAME, presented))

    @operation("Create a department", body=NewDepartment, answer=DepartmentAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        department = tenants.create_department(
            acting=self.acting, **parse_body(request, NewDepartment).explicit_values()
        )
        return created(answer(department), f"/api/v1/departments/{department.name}")


class OneDepartment(ApiView):
    change_scope = "admin"

    @operation("Get a department", answer=DepartmentAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        return Response(answer(selectors.find_department(self.acting, name)))

    @operation("Update a department", body=TenantChanges, answer=DepartmentAnswer)
    def patch(self, request: Request, name: str) -> Response:
        no_query(request)
        department = selectors.find_department(self.acting, name)
        changes = parse_body(request, TenantChanges).explicit_values()
        return Response(
            answer(tenants.edit_department(acting=self.acting, department=department, changes=changes))
        )

    @operation("Delete a department without projects", status=204)
    def delete(self, request: Request, name: str) -> Response:
        no_query(request)
        tenants.delete_department(acting=self.acting, department=selectors.find_department(self.acting, name))
        return no_content()


def answer(department: Department) -> DepartmentAnswer:
    return DepartmentAnswer(
        name=department.name,
        title=department.title,
        rank=department.rank,
        reclaim_min_runtime=department.reclaim_min_runtime,
        preempt_min_runtime=department.preempt_min_runtime,
        created_at=department.created_at,
    )


def presented(rows: Sequence[Department]) -> list[Any]:
    return [answer(row) for row in rows]
