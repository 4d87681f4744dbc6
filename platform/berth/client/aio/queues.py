"""The queue of a pool."""

from typing import Any

from berth.client.aio.resource import AsyncResource
from berth.client.models.scheduling import Queue

PAGE = 500


class AsyncQueues(AsyncResource):
    async def read(self, pool: str, *, limit: int | None = None) -> Queue:
        path, items, cursor = f"node-pools/{pool}/queue", list[Any](), None
        while True:
            page_size = PAGE if limit is None else min(PAGE, limit - len(items))
            page: dict[str, Any] = await self._transport.get(path, {"limit": page_size, "cursor": cursor})
            items += page["items"]
            cursor = page.pop("next")
            if cursor is None or (limit is not None and len(items) >= limit):
                return Queue.model_validate({**page, "items": items})
