# Generated from berth/client/aio/resource.py by `python -m berth.client.generate`; do not edit.
"""Base class for the client's groups of methods, such as `client.workloads`."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from berth.client.http import PAGE, Params, json_content
from berth.client.models.base import Model
from berth.client.sync.transport import Transport

M = TypeVar("M", bound=Model)


class Resource:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _get(self, model: type[M], path: str, params: Params | None = None) -> M:
        return model.model_validate(self._transport.get(path, params))

    def _iterate(
        self,
        model: type[M],
        path: str,
        params: Params | None = None,
        limit: int | None = None,
        page_size: int = PAGE,
    ) -> Iterator[M]:
        for item in self._transport.iterate_items(path, params, limit, page_size):
            yield model.model_validate(item)

    def _post(
        self,
        model: type[M],
        path: str,
        body: object = None,
        params: Params | None = None,
        key: str | None = None,
    ) -> M:
        return model.model_validate(self._transport.post(path, body, params, key))

    def _send(
        self,
        model: type[M],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        response = self._transport.execute(method, path, params=params, body=body, headers=headers)
        return model.model_validate(json_content(response))

    def _put(self, model: type[M], path: str, body: object, tag: str) -> M:
        """Replace an object if its ETag is still `tag`. If `tag` is empty, create the object."""
        condition = {"If-Match": tag} if tag else {"If-None-Match": "*"}
        return self._send(model, "PUT", path, body=body, headers=condition)

    def _read(self, path: str) -> tuple[Any, str]:
        """Return an object's document and its ETag."""
        response = self._transport.execute("GET", path)
        return json_content(response), str(response.headers.get("ETag", "*"))

    def _delete_if_unchanged(self, path: str) -> None:
        """Delete an object. Raises Conflict if it changes at the same time."""
        _, tag = self._read(path)
        self._delete(path, headers={"If-Match": tag})

    def _delete(self, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._transport.execute("DELETE", path, headers=headers)
