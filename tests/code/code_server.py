"""An HTTP server that sends code to nodes, and can misbehave."""

import io
import ssl
import tarfile
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

SECRET = "code.secret"
Answer = Callable[[BaseHTTPRequestHandler], None]


class CodeServer:
    """A server that sends its responses in order, one for each request, and repeats the last one."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: list[Answer] = [send_archive()]
        self.authorizations: list[str | None] = []
        self.paths: list[str] = []
        self.release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.authorizations.append(self.headers["Authorization"])
                outer.paths.append(self.path)
                number = min(len(outer.authorizations), len(outer.answers)) - 1
                outer.answers[number](self)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.http.server_address[1]}/code"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def stop_in_the_middle(self, request: BaseHTTPRequestHandler) -> None:
        """Send half of the archive, then wait."""
        content = archive()
        start_answer(request, 200, len(content))
        request.wfile.write(content[: len(content) // 2])
        self.release.wait(600)

    def close(self) -> None:
        self.release.set()
        self.http.shutdown()
        self.http.server_close()


def archive(lines: int = 2000, links: Mapping[str, str] = MappingProxyType({})) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in (("src/train.py", b"print('trained')\n" * lines), ("empty", b"")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        end = tar.offset
    # Berth's server ends its archives in the same way.
    return buffer.getvalue()[:end] + bytes(2 * tarfile.BLOCKSIZE)


def start_answer(request: BaseHTTPRequestHandler, status: int, size: int, **headers: str) -> None:
    request.send_response(status)
    for name, value in ({"Content-Length": str(size)} | headers).items():
        request.send_header(name, value)
    request.end_headers()


def send_archive(content: bytes | None = None) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        body = archive() if content is None else content
        start_answer(request, 200, len(body))
        request.wfile.write(body)

    return answer


def send_problem(status: int, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        body = b'{"detail": "No code for you."}'
        start_answer(request, status, len(body), **headers)
        request.wfile.write(body)

    return answer


def send_half(request: BaseHTTPRequestHandler) -> None:
    content = archive()
    start_answer(request, 200, len(content))
    request.wfile.write(content[: len(content) // 2])
