"""Manage the workload templates of projects."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth.client.aio.resource import AsyncResource
from berth.client.models.templates import Template, TemplateDetail


class AsyncTemplates(AsyncResource):
    def list(self, project: str | None = None) -> AsyncIterator[Template]:
        return self._iterate(Template, "templates", {"project": project})

    async def get(self, project: str, name: str) -> TemplateDetail:
        return await self._get(TemplateDetail, template_path(project, name))

    async def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str = ""
    ) -> TemplateDetail:
        """Create a template. Raises Conflict if the template already exists."""
        body = template_body(document, description)
        return await self._put(TemplateDetail, template_path(project, name), body, "")

    async def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str | None = None
    ) -> TemplateDetail:
        """Replace a template. Raises Conflict if it was changed concurrently."""
        path = template_path(project, name)
        present, tag = await self._read(path)
        text = present["description"] if description is None else description
        return await self._put(TemplateDetail, path, template_body(document, text), tag)

    async def delete(self, project: str, name: str) -> None:
        await self._delete_if_unchanged(template_path(project, name))


def template_body(document: Mapping[str, Any] | str, description: str) -> dict[str, Any]:
    content = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**content, "description": description}


def template_path(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
