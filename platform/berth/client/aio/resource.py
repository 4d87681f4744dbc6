"""Base class for the client's groups of methods, such as `client.workloads`."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from berth.client.aio.transport import AsyncTransport
from berth.client.http import PAGE, Params, json_content
from berth.client.models.base import Model

M = TypeVar("M", bound=Model)


class AsyncResource:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def _get(self, model: type[M], path: str, params: Params | None = None) -> M:
        return model.model_validate(await self._transport.get(path, params))

    async def _iterate(
        self,
        model: type[M],
        path: str,
        params: Params | None = None,
        limit: int | None = None,
        page_size: int = PAGE,
    ) -> AsyncIterator[M]:
        async for item in self._transport.iterate_items(path, params, limit, page_size):
            yield model.model_validate(item)

    async def _post(
        self,
        model: type[M],
        path: str,
        body: object = None,
        params: Params | None = None,
        key: str | None = None,
    ) -> M:
        return model.model_validate(await self._transport.post(path, body, params, key))

    async def _send(
        self,
        model: type[M],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        response = await self._transport.execute(method, path, params=params, body=body, headers=headers)
        return model.model_validate(json_content(response))

    async def _put(self, model: type[M], path: str, body: object, tag: str) -> M:
        """Replace an object if its ETag is still `tag`. If `tag` is empty, create the object."""
        condition = {"If-Match": tag} if tag else {"If-None-Match": "*"}
        return await self._send(model, "PUT", path, body=body, headers=condition)

    async def _read(self, path: str) -> tuple[Any, str]:
        """Return an object's document and its ETag."""
        response = await self._transport.execute("GET", path)
        return json_content(response), str(response.headers.get("ETag", "*"))

    async def _delete_if_unchanged(self, path: str) -> None:
        """Delete an object. Raises Conflict if it changes at the same time."""
        _, tag = await self._read(path)
        await self._delete(path, headers={"If-Match": tag})

    async def _delete(self, path: str, headers: Mapping[str, str] | None = None) -> None:
        await self._transport.execute("DELETE", path, headers=headers)
