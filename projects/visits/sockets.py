"""Proxy a WebSocket to a pod."""

import asyncio
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from projects.services.workloads.ports import Place
from projects.visits.headers import Headers, first_of, to_pod_by_socket
from projects.visits.requests import Receive, Scope, Send, Silent

CONNECT_SECONDS = 5.0
LARGEST_MESSAGE = 16 * 2**20
MOST_FRAMES_KEPT = 2  # whoever reads slowly makes the pod wait, not this process grow
GONE, BROKEN = 1001, 1011
SENDABLE = (*range(1000, 1004), *range(1007, 1015), *range(3000, 5000))


async def join(scope: Scope, receive: Receive, send: Send, *, place: Place, headers: Headers) -> None:
    """The pod is called first, so that its refusal is ours. Raises Silent before anything was accepted."""
    await receive()  # websocket.connect
    pod = await _called(scope, place, headers)
    async with pod:
        await send({"type": "websocket.accept", "subprotocol": pod.subprotocol})
        told = asyncio.ensure_future(_tell(receive, pod))
        heard = asyncio.ensure_future(_hear(pod, send))
        try:
            await asyncio.wait({told, heard}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (told, heard):
                task.cancel()
                with suppress(asyncio.CancelledError, ConnectionClosed, OSError, RuntimeError):
                    await task


class Straight(connect):
    """Goes where it was sent and nowhere else: a pod's redirect would lead Berth to other machines."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _called(scope: Scope, place: Place, headers: Headers) -> ClientConnection:
    query = scope.get("query_string", b"").decode("latin-1")
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    # The pod hears the name that the visitor called, and is called at its own address.
    url = f"ws://{first_of(headers, b'host')}{path}{'?' + query if query else ''}"
    try:
        return await Straight(
            url, host=place.host, port=place.port, additional_headers=to_pod_by_socket(headers),
            subprotocols=[Subprotocol(name) for name in scope.get("subprotocols", ())] or None,
            compression=None, user_agent_header=None, proxy=None, open_timeout=CONNECT_SECONDS,
            max_size=LARGEST_MESSAGE, max_queue=MOST_FRAMES_KEPT, ping_interval=None,
        )  # fmt: skip
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ValueError) as error:
        raise Silent(type(error).__name__) from None


async def _tell(receive: Receive, pod: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await pod.close(_code(message.get("code")), message.get("reason") or "")
            return
        text: Any = message.get("text")
        await pod.send(text if text is not None else message.get("bytes") or b"")


async def _hear(pod: ClientConnection, send: Send) -> None:
    try:
        async for message in pod:
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    except ConnectionClosed:
        pass
    code, reason = _code(pod.close_code), pod.close_reason or ""
    await send({"type": "websocket.close", "code": code, "reason": reason})


def _code(given: int | None) -> int:
    """Some codes are only ever told, never sent."""
    if given in (1005, 1006, None):
        return GONE
    return given if given in SENDABLE else BROKEN
