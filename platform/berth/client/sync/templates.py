# Generated from berth/client/aio/templates.py by `python -m berth.client.generate`; do not edit.
"""Manage the workload templates of projects."""

from collections.abc import Iterator, Mapping
from typing import Any

from berth.client.http import json_content
from berth.client.models.templates import Template, TemplateDetail
from berth.client.sync.transport import Transport


class Templates:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str | None = None) -> Iterator[Template]:
        for item in self._transport.iterate_items("templates", {"project": project}):
            yield Template.model_validate(item)

    def get(self, project: str, name: str) -> TemplateDetail:
        return TemplateDetail.model_validate(self._transport.get(template_path(project, name)))

    def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str = ""
    ) -> TemplateDetail:
        """Create a template. Raises Conflict if it already exists."""
        return self._put(
            template_path(project, name), template_body(document, description), {"If-None-Match": "*"}
        )

    def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str | None = None
    ) -> TemplateDetail:
        """Replace a template. Raises Conflict if it was changed concurrently."""
        path = template_path(project, name)
        current = self._transport.execute("GET", path)
        text = json_content(current)["description"] if description is None else description
        return self._put(path, template_body(document, text), {"If-Match": current.headers.get("ETag", "*")})

    def delete(self, project: str, name: str) -> None:
        path = template_path(project, name)
        tag = self._transport.etag(path)
        self._transport.execute("DELETE", path, headers={"If-Match": tag})

    def _put(self, path: str, body: object, condition: Mapping[str, str]) -> TemplateDetail:
        response = self._transport.execute("PUT", path, body=body, headers=condition)
        return TemplateDetail.model_validate(json_content(response))


def template_body(document: Mapping[str, Any] | str, description: str) -> dict[str, Any]:
    content = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**content, "description": description}


def template_path(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
