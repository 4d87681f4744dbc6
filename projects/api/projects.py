"""REST endpoints of projects."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.texts import Text
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, Word, no_query, parse_body, parse_query
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.departments import TenantChanges
from projects.api.lookups import department_in_body
from projects.models import Project
from projects.services import tenants

BY_NAME = Order("name", ("name",))


class ProjectsQuery(ListQuery):
    department: Word | None = None


class ProjectAnswer(Answer):
    name: str
    department: str
    title: str
    rank: int
    reclaim_min_runtime: int | None
    preempt_min_runtime: int | None
    created_at: datetime


class NewProject(Body):
    name: Text
    department: Text
    title: Text = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None


class Projects(ApiView):
    change_scope = "admin"

    @operation("List projects", query=ProjectsQuery, page=ProjectAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ProjectsQuery)
        rows = selectors.projects(self.acting)
        if query.department is not None:
            rows = rows.filter(department__name=query.department)
        return Response(page(rows, query, BY_NAME, presented))

    @operation("Create a project", body=NewProject, answer=ProjectAnswer, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        values = parse_body(request, NewProject).explicit_values()
        department = department_in_body(self.acting, values.pop("department"))
        project = tenants.create_project(acting=self.acting, department=department, **values)
        return created(answer(project), f"/api/v1/projects/{project.name}")


class OneProject(ApiView):
    change_scope = "admin"

    @operation("Get a project", answer=ProjectAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        return Response(answer(selectors.find_project(self.acting, name)))

    @operation("Update a project", body=TenantChanges, answer=ProjectAnswer)
    def patch(self, request: Request, name: str) -> Response:
        no_query(request)
        project = selectors.find_project(self.acting, name)
        changes = parse_body(request, TenantChanges).explicit_values()
        return Response(answer(tenants.edit_project(acting=self.acting, project=project, changes=changes)))

    @operation("Delete a project without workloads", status=204)
    def delete(self, request: Request, name: str) -> Response:
        no_query(request)
        tenants.delete_project(acting=self.acting, project=selectors.find_project(self.acting, name))
        return no_content()


def answer(project: Project) -> ProjectAnswer:
    return ProjectAnswer(
        name=project.name,
        department=project.department.name,
        title=project.title,
        rank=project.rank,
        reclaim_min_runtime=project.reclaim_min_runtime,
        preempt_min_runtime=project.preempt_min_runtime,
        created_at=project.created_at,
    )


def presented(rows: Sequence[Project]) -> list[Any]:
    return [answer(row) for row in rows]
