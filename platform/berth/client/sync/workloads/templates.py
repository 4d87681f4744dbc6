# Generated from berth/client/aio/workloads/templates.py by `python -m berth.client.generate`; do not edit.
"""Manage the workload templates of projects."""

from collections.abc import Iterator, Mapping
from typing import Any

from berth.client.models.templates import Template, TemplateDetail
from berth.client.sync.resource import Resource


class Templates(Resource):
    def list(self, project: str | None = None) -> Iterator[Template]:
        return self._iterate(Template, "templates", {"project": project})

    def get(self, project: str, name: str) -> TemplateDetail:
        return self._get(TemplateDetail, template_path(project, name))

    def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str = ""
    ) -> TemplateDetail:
        """Create a template. Raises Conflict if the template already exists."""
        body = template_body(document, description)
        return self._put(TemplateDetail, template_path(project, name), body, "")

    def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str | None = None
    ) -> TemplateDetail:
        """Replace a template. Raises Conflict if it was changed concurrently."""
        path = template_path(project, name)
        present, tag = self._read(path)
        text = present["description"] if description is None else description
        return self._put(TemplateDetail, path, template_body(document, text), tag)

    def delete(self, project: str, name: str) -> None:
        self._delete_if_unchanged(template_path(project, name))


def template_body(document: Mapping[str, Any] | str, description: str) -> dict[str, Any]:
    content = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**content, "description": description}


def template_path(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
