"""Proxy a WebSocket to a pod."""

import asyncio
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from projects.port_proxy.headers import Headers, find_header, handshake_headers_for_pod
from projects.port_proxy.requests import NoResponse, Receive, Scope, Send
from projects.port_proxy.streams import OpenPort, connect_through
from projects.services.workloads.ports import PortAddress

CONNECT_SECONDS = 5.0
MAX_MESSAGE = 16 * 2**20
MAX_QUEUED_FRAMES = 2  # a slow reader stalls the pod instead of filling this process's memory
GOING_AWAY, INTERNAL_ERROR = 1001, 1011
SENDABLE_CLOSE_CODES = (*range(1000, 1004), *range(1007, 1015), *range(3000, 5000))


async def proxy_socket(
    scope: Scope, receive: Receive, send: Send, *, address: PortAddress, headers: Headers,
    open_port: OpenPort | None = None,
) -> None:  # fmt: skip
    """Connect to the pod, then accept the socket and forward messages both ways.

    Raises NoResponse if the pod rejects the handshake.
    """
    await receive()  # receive and ignore the websocket.connect message
    pod = await _connect(scope, address, headers, open_port)
    async with pod:
        await send({"type": "websocket.accept", "subprotocol": pod.subprotocol})
        from_browser = asyncio.ensure_future(_forward_to_pod(receive, pod))
        from_pod = asyncio.ensure_future(_forward_to_browser(pod, send))
        try:
            await asyncio.wait({from_browser, from_pod}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (from_browser, from_pod):
                task.cancel()
                with suppress(asyncio.CancelledError, ConnectionClosed, OSError, RuntimeError):
                    await task


class DirectConnection(connect):
    """Connection that does not follow redirects, because redirects could lead Berth to other machines."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _connect(
    scope: Scope, address: PortAddress, headers: Headers, open_port: OpenPort | None
) -> ClientConnection:
    query = scope.get("query_string", b"").decode("latin-1")
    path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    # The pod receives the Host header from the browser, but the connection goes to the pod's address.
    url = f"ws://{find_header(headers, b'host')}{path}{'?' + query if query else ''}"
    place: dict[str, Any] = {"host": address.host, "port": address.port}
    try:
        if address.tunnel_pod:
            assert open_port is not None
            place = {"sock": await connect_through(open_port, address.tunnel_pod, address.port)}
        return await DirectConnection(
            url, **place, additional_headers=handshake_headers_for_pod(headers),
            subprotocols=[Subprotocol(name) for name in scope.get("subprotocols", ())] or None,
            compression=None, user_agent_header=None, proxy=None, open_timeout=CONNECT_SECONDS,
            max_size=MAX_MESSAGE, max_queue=MAX_QUEUED_FRAMES, ping_interval=None,
        )  # fmt: skip
    except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ValueError) as error:
        raise NoResponse(type(error).__name__) from None


async def _forward_to_pod(receive: Receive, pod: ClientConnection) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            await pod.close(_sendable_close_code(message.get("code")), message.get("reason") or "")
            return
        text: Any = message.get("text")
        await pod.send(text if text is not None else message.get("bytes") or b"")


async def _forward_to_browser(pod: ClientConnection, send: Send) -> None:
    try:
        async for message in pod:
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    except ConnectionClosed:
        pass
    code, reason = _sendable_close_code(pod.close_code), pod.close_reason or ""
    await send({"type": "websocket.close", "code": code, "reason": reason})


def _sendable_close_code(code: int | None) -> int:
    """Return the code to send in a close frame. Codes that must not be sent are replaced."""
    if code in (1005, 1006, None):
        return GOING_AWAY
    return code if code in SENDABLE_CLOSE_CODES else INTERNAL_ERROR
