"""A small web server that acts as a pod: it records, streams and echoes requests."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

App = Callable[[Any, Any, Any], Awaitable[None]]
PAGE = b"<!doctype html><title>pod</title><h1 id=what>waiting</h1><script src=/page.js></script>"
SCRIPT = b"""
const socket = new WebSocket(`ws://${location.host}/socket`);
socket.onopen = () => socket.send("hello");
socket.onmessage = (event) => { document.getElementById("what").textContent = event.data; };
"""


@dataclass
class Pod:
    """The web server of a pod. `heard` lists requests, newest last.

    `left` is set if a client disconnects early.
    """

    heard: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.heard.append(_request_facts(scope))
        if scope["type"] == "websocket":
            await _echo(scope, receive, send)
            return
        answers = {
            "/": _page, "/page.js": _script, "/cookies": _cookies, "/take": _take, "/moved": _moved,
            "/unchanged": _unchanged, "/broken": _broken, "/slow": _slow,
        }  # fmt: skip
        if scope["path"] == "/endless":
            await self._endless(receive, send)
        else:
            await answers.get(scope["path"], _return_request)(scope, receive, send)

    async def _endless(self, receive: Any, send: Any) -> None:
        await _begin(send, [(b"content-type", b"text/event-stream")])
        await receive()
        disconnected = asyncio.ensure_future(receive())
        while not disconnected.done():
            await send({"type": "http.response.body", "body": b"data: tick\n\n", "more_body": True})
            await asyncio.wait({disconnected}, timeout=0.02)
        self.left.set()


class Server(uvicorn.Server):
    """A server that checks more often whether it should stop."""

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def served(app: App) -> Iterator[int]:
    """Serve the application while the block runs, and yield its local port."""
    with serve_all(app) as (port,):
        yield port


@contextlib.contextmanager
def serve_all(*apps: App) -> Iterator[list[int]]:
    """Serve all applications while the block runs, and yield their local ports. All of them end together."""
    with contextlib.ExitStack() as stack:
        ports, servers, threads = [], [], []
        for app in apps:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            server = Server(
                uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
            )
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            ports.append(listening.getsockname()[1])
            servers.append(server)
            threads.append(thread)
            thread.start()
        deadline = time.monotonic() + 120
        while not all(server.started for server in servers) and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield ports
        finally:
            for server in servers:
                server.should_exit = True
            for thread in threads:
                thread.join(60)


async def _begin(send: Any, headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _answer(send: Any, body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await _begin(send, [*headers, (b"content-length", str(len(body)).encode())], status)
    await send({"type": "http.response.body", "body": body})


async def _page(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, PAGE, (b"content-type", b"text/html"))


async def _script(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, SCRIPT, (b"content-type", b"text/javascript"))


async def _cookies(scope: Any, receive: Any, send: Any) -> None:
    await _answer(
        send, b"set",
        (b"set-cookie", b"own=1; Domain=.localhost; Path=/; HttpOnly"), (b"set-cookie", b"sessionid=stolen"),
        (b"set-cookie", b"berth_port=fixed; Path=/"), (b"clear-site-data", b'"cookies"'),
        (b"strict-transport-security", b"max-age=9"), (b"connection", b"x-inner"), (b"x-inner", b"1"),
    )  # fmt: skip


async def _take(scope: Any, receive: Any, send: Any) -> None:
    size, parts, more = 0, 0, True
    while more:
        message = await receive()
        size, parts, more = size + len(message.get("body", b"")), parts + 1, message.get("more_body", False)
    await _answer(send, json.dumps({"size": size, "parts": parts}).encode())


async def _slow(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(60)


async def _moved(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, b"", (b"location", b"/elsewhere?a=1"), status=302)


async def _unchanged(scope: Any, receive: Any, send: Any) -> None:
    await _begin(send, [(b"etag", b'"1"')], 304)
    await send({"type": "http.response.body", "body": b""})


async def _broken(scope: Any, receive: Any, send: Any) -> None:
    await _begin(send, [(b"content-length", b"1000")])
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def _return_request(scope: Any, receive: Any, send: Any) -> None:
    await _answer(send, json.dumps(_request_facts(scope)).encode(), (b"content-type", b"application/json"))


def _request_facts(scope: Any) -> dict[str, Any]:
    headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
    request = {"method": scope.get("method"), "path": scope["path"], "query": scope["query_string"].decode()}
    return {**request, "headers": headers}


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    if scope["path"].startswith("/moved/"):
        headers = [(b"location", f"ws://127.0.0.1:{scope['path'].rpartition('/')[2]}/stolen".encode())]
        await send({"type": "websocket.http.response.start", "status": 302, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": b""})
        return
    if scope["path"] == "/closed":
        await send({"type": "websocket.close", "code": 4000})
        return
    await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[-1]})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") == "enough":
            await send({"type": "websocket.close", "code": 4321, "reason": "as you wish"})
            return
        if message.get("text") is not None:
            await send({"type": "websocket.send", "text": f"you said {message['text']}"})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"][::-1]})
