"""REST endpoints for projects."""

from datetime import datetime
from typing import Literal

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import check_names
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import Body, ListQuery, Word, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.api.schemas.idle_rules import IdleRuleResponse, IdleRuleValues
from projects import selectors
from projects.api.departments import TenantChanges
from projects.api.lookups import resolve_department
from projects.known_names import unknown_department_problem
from projects.models import Project
from projects.queries.volumes import project_volumes
from projects.services import tenants

BY_NAME = Order("name", ("name",))


class ProjectsQuery(ListQuery):
    department: Word | None = None


class ProjectResponse(ResponseModel):
    name: str
    department: str
    title: str
    rank: int
    reclaim_min_runtime: int | None
    preempt_min_runtime: int | None
    idle_rule: IdleRuleResponse | None = Field(
        description="Rule for idle GPUs that replaces those of the pools; null for none."
    )
    created_at: datetime


class ProjectVolumeResponse(ResponseModel):
    """Volume that the project's workloads may use in one pool."""

    name: str
    pool: str
    access: Literal["read_only", "read_write"]
    nodes: int = Field(description="Nodes of the pool that have the volume.")
    pool_nodes: int = Field(description="All nodes of the pool.")


class ProjectDetailResponse(ProjectResponse):
    volumes: list[ProjectVolumeResponse]


class NewProject(Body):
    name: Text
    department: Text
    title: Text = ""
    rank: int = 0
    reclaim_min_runtime: int | None = None
    preempt_min_runtime: int | None = None
    idle_rule: IdleRuleValues = None


class ProjectChanges(TenantChanges):
    """Changes to a project. Omitted fields stay unchanged."""

    idle_rule: IdleRuleValues = None


class Projects(ApiView):
    change_scope = "admin"

    @operation("List projects", query=ProjectsQuery, page=ProjectResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ProjectsQuery)
        check_names(unknown_department_problem(self.actor, query.department))
        rows = selectors.projects(self.actor)
        rows = filter_by(rows, department__name=query.department)
        return Response(page(rows, query, BY_NAME, map_rows(serialize_project)))

    @operation("Create a project", body=NewProject, response=ProjectResponse, status=201)
    @idempotent
    def post(self, request: Request) -> Response:
        values = parse_body(request, NewProject).explicit_values()
        department = resolve_department(self.actor, values.pop("department"))
        project = tenants.create_project(actor=self.actor, department=department, **values)
        return created_response(serialize_project(project), f"/api/v1/projects/{project.name}")


class ProjectDetail(ApiView):
    change_scope = "admin"

    @operation("Get a project with the volumes that it may use", response=ProjectDetailResponse)
    def get(self, request: Request, name: str) -> Response:
        project = selectors.find_project(self.actor, name)
        volumes = [ProjectVolumeResponse.from_row(volume) for volume in project_volumes(project)]
        return Response(ProjectDetailResponse.from_row(serialize_project(project), volumes=volumes))

    @operation("Update a project", body=ProjectChanges, response=ProjectResponse)
    def patch(self, request: Request, name: str) -> Response:
        project = selectors.find_project(self.actor, name)
        changes = parse_body(request, ProjectChanges).explicit_values()
        return Response(
            serialize_project(tenants.edit_project(actor=self.actor, project=project, changes=changes))
        )

    @operation("Delete a project without workloads", status=204)
    def delete(self, request: Request, name: str) -> Response:
        tenants.delete_project(actor=self.actor, project=selectors.find_project(self.actor, name))
        return no_content()


def serialize_project(project: Project) -> ProjectResponse:
    return ProjectResponse.from_row(
        project,
        department=project.department.name,
        idle_rule=IdleRuleResponse.from_rule(project.idle_rule),
    )
