# Generated from berth/client/aio/templates.py by `python -m berth.client.generate`; do not edit.
"""Workload templates of projects, under asyncio."""

from collections.abc import Iterator, Mapping
from typing import Any

from berth.client.http import content_of
from berth.client.models.templates import Template
from berth.client.sync.transport import Transport


class Templates:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str | None = None) -> Iterator[Template]:
        for item in self._transport.pages("templates", {"project": project}):
            yield Template.model_validate(item)

    def get(self, project: str, name: str) -> Template:
        return Template.model_validate(self._transport.get(path_of(project, name)))

    def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str = ""
    ) -> Template:
        """Create a template. Raises Conflict if it exists."""
        return self._put(path_of(project, name), body_of(document, description), {"If-None-Match": "*"})

    def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str | None = None
    ) -> Template:
        """Replace a template. Raises Conflict if it changed at the same time."""
        path = path_of(project, name)
        current = self._transport.ask("GET", path)
        text = content_of(current)["description"] if description is None else description
        return self._put(path, body_of(document, text), {"If-Match": current.headers.get("ETag", "*")})

    def delete(self, project: str, name: str) -> None:
        path = path_of(project, name)
        tag = self._transport.etag(path)
        self._transport.ask("DELETE", path, headers={"If-Match": tag})

    def _put(self, path: str, body: object, condition: Mapping[str, str]) -> Template:
        answer = self._transport.ask("PUT", path, body=body, headers=condition)
        return Template.model_validate(content_of(answer))


def body_of(document: Mapping[str, Any] | str, description: str) -> dict[str, Any]:
    content = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**content, "description": description}


def path_of(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
