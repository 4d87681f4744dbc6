"""REST endpoints for project templates."""

from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.not_found import ObjectKind, not_found_error
from berth.core.problems import Problem
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import NameColumn, check_names
from berth.documents.ordered import dump_workload
from berth.server.api.pagination import Order, filter_by, map_rows, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    Word,
    etag,
    expected_version,
    parse_body,
    parse_query,
)
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.known_names import unknown_project_problem
from projects.models import Project, Template
from projects.services.workloads import templates

BY_NAME = Order("name", ("project__name", "name", "id"))
PRECONDITION_HEADERS = ("If-Match", "If-None-Match")


class TemplateValues(Body):
    """Workload document, either in `document` or as YAML in `text`. Comments in the YAML are kept."""

    document: dict[str, Any] | None = None
    text: str | None = None
    description: Text = ""


class TemplateResponse(ResponseModel):
    name: str
    project: str
    description: str
    kind: str
    created_by: str | None
    changed_by: str
    changed_at: datetime
    version: int


class TemplateDetailResponse(TemplateResponse):
    text: str
    document: dict[str, Any]


class TemplatesQuery(ListQuery):
    project: Word | None = None


class Templates(ApiView):
    @operation("List templates", query=TemplatesQuery, page=TemplateResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, TemplatesQuery)
        check_names(unknown_project_problem(self.actor, query.project))
        rows = selectors.templates(self.actor)
        rows = filter_by(rows, project__name=query.project)
        return Response(page(rows, query, BY_NAME, map_rows(serialize_list_row)))


class ProjectTemplates(ApiView):
    @operation("List a project's templates", query=ListQuery, page=TemplateResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        project = selectors.find_project(self.actor, name)
        rows = selectors.templates(self.actor).filter(project=project)
        return Response(page(rows, query, BY_NAME, map_rows(serialize_list_row)))


class TemplateDetail(ApiView):
    @operation("Get a template with its document", response=TemplateDetailResponse)
    def get(self, request: Request, name: str, template: str) -> Response:
        row = self._get_template(selectors.find_project(self.actor, name), template)
        return Response(serialize_template(row), headers={"ETag": etag(row.version)})

    @operation(
        "Set a template",
        body=TemplateValues,
        response=TemplateDetailResponse,
        headers=PRECONDITION_HEADERS,
        also_status=201,
    )
    def put(self, request: Request, name: str, template: str) -> Response:
        project = selectors.find_project(self.actor, name)
        self.require("submit", project)
        existing = self._find_template(project, template)
        expected = expected_version(request, existing.version if existing else None)
        values = parse_body(request, TemplateValues)
        stored = templates.set_template(
            actor=self.actor, project=project, name=template, text=_document_text(values),
            description=values.description,
            expected_version=expected,
        )  # fmt: skip
        tag = etag(stored.version)
        if existing is None:
            return created_response(
                serialize_template(stored), f"/api/v1/projects/{name}/templates/{template}", ETag=tag
            )
        return Response(serialize_template(stored), headers={"ETag": tag})

    @operation("Delete a template", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str, template: str) -> Response:
        row = self._get_template(selectors.find_project(self.actor, name), template)
        templates.require_change_permission(self.actor, row)
        expected = expected_version(request, row.version)
        templates.delete_template(actor=self.actor, template=row, expected_version=expected)
        return no_content()

    def _find_template(self, project: Project, name: str) -> Template | None:
        return selectors.templates(self.actor).filter(project=project, name=name).first()

    def _get_template(self, project: Project, name: str) -> Template:
        template = self._find_template(project, name)
        if template is None:
            names = NameColumn(selectors.templates(self.actor).filter(project=project)).list()
            raise not_found_error(ObjectKind.TEMPLATE, name=name, owner=project.name, visible=names)
        return template


def serialize_list_row(row: Template) -> TemplateResponse:
    return TemplateResponse.from_row(row, **_template_values(row))


def serialize_template(row: Template) -> TemplateDetailResponse:
    document = templates.template_document(row)
    return TemplateDetailResponse.from_row(row, document=document, **_template_values(row))


def _template_values(row: Template) -> dict[str, Any]:
    return {
        "project": row.project.name,
        "kind": str(templates.template_document(row).get("kind", "training")),
        "created_by": row.made_by.get_username() if row.made_by else None,
    }


def _document_text(values: TemplateValues) -> str:
    if (values.text is None) == (values.document is None):
        received = "neither" if values.text is None else "both"
        raise Invalid([Problem("document", "needs document or text", received, "either document or text")])
    return dump_workload(values.document) if values.document is not None else values.text or ""
