"""Workload templates of projects, under asyncio."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth.client.aio.transport import AsyncTransport
from berth.client.http import content_of
from berth.client.models.templates import Template


class AsyncTemplates:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, project: str | None = None) -> AsyncIterator[Template]:
        async for item in self._transport.pages("templates", {"project": project}):
            yield Template.model_validate(item)

    async def get(self, project: str, name: str) -> Template:
        return Template.model_validate(await self._transport.get(path_of(project, name)))

    async def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str = ""
    ) -> Template:
        """Create a template. Raises Conflict if it exists."""
        return await self._put(path_of(project, name), body_of(document, description), {"If-None-Match": "*"})

    async def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, description: str | None = None
    ) -> Template:
        """Replace a template. Raises Conflict if it changed at the same time."""
        path = path_of(project, name)
        current = await self._transport.ask("GET", path)
        text = content_of(current)["description"] if description is None else description
        return await self._put(path, body_of(document, text), {"If-Match": current.headers.get("ETag", "*")})

    async def delete(self, project: str, name: str) -> None:
        path = path_of(project, name)
        tag = await self._transport.etag(path)
        await self._transport.ask("DELETE", path, headers={"If-Match": tag})

    async def _put(self, path: str, body: object, condition: Mapping[str, str]) -> Template:
        answer = await self._transport.ask("PUT", path, body=body, headers=condition)
        return Template.model_validate(content_of(answer))


def body_of(document: Mapping[str, Any] | str, description: str) -> dict[str, Any]:
    content = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**content, "description": description}


def path_of(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
