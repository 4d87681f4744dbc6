"""REST endpoints of project templates."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid, NotFound
from berth.core.problems import Problem
from berth.core.spec.texts import Text
from berth.documents.ordered import as_text
from berth.server.api.pagination import Order, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    Word,
    etag,
    expected_version,
    no_query,
    parse_body,
    parse_query,
)
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.models import Project, Template
from projects.services.workloads import templates

BY_NAME = Order("name", ("project__name", "name", "id"))
GUARDS = ("If-Match", "If-None-Match")


class TemplateValues(Body):
    """A workload document, either as `document` or as YAML in `text`, whose comments are kept."""

    document: dict[str, Any] | None = None
    text: str | None = None
    description: Text = ""


class TemplateAnswer(Answer):
    name: str
    project: str
    description: str
    kind: str
    created_by: str | None
    changed_by: str
    changed_at: datetime
    version: int


class OneTemplateAnswer(TemplateAnswer):
    text: str
    document: dict[str, Any]


class TemplatesQuery(ListQuery):
    project: Word | None = None


class Templates(ApiView):
    @operation("List templates", query=TemplatesQuery, page=TemplateAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, TemplatesQuery)
        rows = selectors.templates(self.acting)
        if query.project is not None:
            rows = rows.filter(project__name=query.project)
        return Response(page(rows, query, BY_NAME, presented))


class TemplatesOfProject(ApiView):
    @operation("List the templates of a project", query=ListQuery, page=TemplateAnswer)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        project = selectors.find_project(self.acting, name)
        rows = selectors.templates(self.acting).filter(project=project)
        return Response(page(rows, query, BY_NAME, presented))


class OneTemplate(ApiView):
    @operation("Get a template with its document", answer=OneTemplateAnswer)
    def get(self, request: Request, name: str, template: str) -> Response:
        no_query(request)
        row = self._template(selectors.find_project(self.acting, name), template)
        return Response(whole(row), headers={"ETag": etag(row.version)})

    @operation(
        "Set a template", body=TemplateValues, answer=OneTemplateAnswer, headers=GUARDS, also_status=201
    )
    def put(self, request: Request, name: str, template: str) -> Response:
        no_query(request)
        project = selectors.find_project(self.acting, name)
        self.require("submit", project)
        present = self._find(project, template)
        expected = expected_version(request, present.version if present else None)
        values = parse_body(request, TemplateValues)
        stored = templates.set_template(
            acting=self.acting, project=project, name=template, text=_text(values),
            description=values.description,
            expected_version=expected,
        )  # fmt: skip
        tag = etag(stored.version)
        if present is None:
            return created(whole(stored), f"/api/v1/projects/{name}/templates/{template}", ETag=tag)
        return Response(whole(stored), headers={"ETag": tag})

    @operation("Delete a template", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str, template: str) -> Response:
        no_query(request)
        row = self._template(selectors.find_project(self.acting, name), template)
        templates.require_change(self.acting, row)
        expected = expected_version(request, row.version)
        templates.delete_template(acting=self.acting, template=row, expected_version=expected)
        return no_content()

    def _find(self, project: Project, name: str) -> Template | None:
        return selectors.templates(self.acting).filter(project=project, name=name).first()

    def _template(self, project: Project, name: str) -> Template:
        template = self._find(project, name)
        if template is None:
            raise NotFound("No such template.")
        return template


def presented(rows: Sequence[Template]) -> list[Any]:
    return [TemplateAnswer(**_columns(row)) for row in rows]


def whole(row: Template) -> OneTemplateAnswer:
    return OneTemplateAnswer(**_columns(row), text=row.text, document=templates.document_of(row))


def _columns(row: Template) -> dict[str, Any]:
    return {
        "name": row.name,
        "project": row.project.name,
        "description": row.description,
        "kind": str(templates.document_of(row).get("kind", "training")),
        "created_by": row.made_by.get_username() if row.made_by else None,
        "changed_by": row.changed_by,
        "changed_at": row.changed_at,
        "version": row.version,
    }


def _text(values: TemplateValues) -> str:
    if (values.text is None) == (values.document is None):
        received = "neither" if values.text is None else "both"
        raise Invalid([Problem("document", "needs document or text", received, "one of the two")])
    return as_text(values.document) if values.document is not None else values.text or ""
