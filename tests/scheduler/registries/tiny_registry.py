"""A small registry on loopback that requires tokens, returns errors or does not respond."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MANIFEST = b'{"schemaVersion": 2}'
TOKEN = "a-token"
USER, PASSWORD = "robot", "secret"


@dataclass
class TinyRegistry:
    """A registry with the image `team/train:1`. Other names select its behaviour (see `_Handler`)."""

    address: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)  # set to end the requests that hang

    def image(self, name: str) -> str:
        return f"{self.address}/{name}"

    @property
    def auth(self) -> str:
        encoded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return f'{{"auths": {{"{self.address}": {{"auth": "{encoded}"}}}}}}'


class _Handler(BaseHTTPRequestHandler):
    registry: TinyRegistry

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        self.registry.requests.append((self.command, self.path))
        if parts.path == "/token":
            self._answer_token(parse_qs(parts.query))
            return
        behaviour, _, tag = parts.path.removeprefix("/v2/").partition("/manifests/")
        authorization = self.headers.get("Authorization", "")
        if behaviour == "hangs":
            self.registry.release.wait()
        elif behaviour.startswith("status-"):
            self._send(int(behaviour.removeprefix("status-")))
        elif behaviour == "private/train" and authorization != f"Bearer {TOKEN}":
            challenge = f'Bearer realm="http://{self.registry.address}/token",service="tiny",scope="train"'
            self._send(401, {"WWW-Authenticate": challenge})
        elif tag != "1":
            self._send(404)
        elif behaviour == "without-digest":
            self._send(200, body=MANIFEST)
        else:
            self._send(200, {"Docker-Content-Digest": f"sha256:{'a' * 64}"})

    def _answer_token(self, query: dict[str, list[str]]) -> None:
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {expected}":
            self._send(401)
        elif query == {"service": ["tiny"], "scope": ["train"]}:
            self._send(200, body=f'{{"token": "{TOKEN}"}}'.encode())
        else:
            self._send(400)

    def _send(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_tiny_registry() -> Iterator[TinyRegistry]:
    registry = TinyRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        registry.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.release.set()
            server.shutdown()
            thread.join()
