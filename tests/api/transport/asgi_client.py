"""A client that sends one request directly to an ASGI application."""

import asyncio
from typing import Any


class AsgiClient:
    """An ASGI client that sends the request body in `parts`, and disconnects once `disconnected` is set."""

    def __init__(
        self, path: str, query: str = "", *, secret: str | None = "", method: str = "GET",
        headers: dict[str, str] | None = None, parts: tuple[bytes, ...] = (b"",),
    ) -> None:  # fmt: skip
        bearer = {} if secret is None else {"authorization": f"Bearer {secret}"}
        fields = {"host": "testserver", **bearer, **(headers or {})}
        self.scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            "http_version": "1.1", "scheme": "http", "server": ("testserver", 80), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        self.sent: list[dict[str, Any]] = []
        self.new_message = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.left = list(parts)

    async def receive(self) -> dict[str, Any]:
        if self.left:
            part = self.left.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self.left)}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.new_message.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(30):
            while text not in self.body:
                await self.new_message.wait()
                self.new_message.clear()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)
