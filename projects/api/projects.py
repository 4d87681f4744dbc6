"""REST endpoints of projects."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.texts import Text
from berth.server.api.answers import Answer
from berth.server.api.bodies import Body, body_of
from berth.server.api.door import Door, created, done
from berth.server.api.idempotency import once
from berth.server.api.pages import Order, page
from berth.server.api.queries import ListQuery, Word, no_query, query_of
from berth.server.api.schema import described
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


class Projects(Door):
    change_scope = "admin"

    @described("Projects that you see", query=ProjectsQuery, page=ProjectAnswer)
    def get(self, request: Request) -> Response:
        query = query_of(request, ProjectsQuery)
        rows = selectors.projects(self.acting)
        if query.department is not None:
            rows = rows.filter(department__name=query.department)
        return Response(page(rows, query, BY_NAME, presented))

    @described("Make a project", body=NewProject, answer=ProjectAnswer, status=201)
    @once
    def post(self, request: Request) -> Response:
        no_query(request)
        values = body_of(request, NewProject).given()
        department = department_in_body(self.acting, values.pop("department"))
        project = tenants.create_project(acting=self.acting, department=department, **values)
        return created(answer(project), f"/api/v1/projects/{project.name}")


class OneProject(Door):
    change_scope = "admin"

    @described("One project", answer=ProjectAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        return Response(answer(selectors.find_project(self.acting, name)))

    @described("Change a project", body=TenantChanges, answer=ProjectAnswer)
    def patch(self, request: Request, name: str) -> Response:
        no_query(request)
        project = selectors.find_project(self.acting, name)
        changes = body_of(request, TenantChanges).given()
        return Response(answer(tenants.edit_project(acting=self.acting, project=project, changes=changes)))

    @described("Remove a project without workloads", status=204)
    def delete(self, request: Request, name: str) -> Response:
        no_query(request)
        tenants.delete_project(acting=self.acting, project=selectors.find_project(self.acting, name))
        return done()


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
