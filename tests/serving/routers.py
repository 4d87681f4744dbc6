"""Routers for tests: the real sglang-router, and a router with an older API."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from projects.serving.base import ServingError
from projects.serving.http_client import HttpClient
from tests.serving.conftest import HERE
from tests.support.ports import free_port

PATIENCE = 60.0
HTTP_CLIENT = HttpClient(HERE, seconds=60.0)


@contextmanager
def sglang_router(log: Path, *more: str, port: int = 0) -> Iterator[str]:
    """Run the real router. Its tokenizer hub is a closed port, so that nothing is downloaded."""
    address, metrics = f"http://127.0.0.1:{port or free_port()}", str(free_port())
    command = [
        sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1",
        "--port", address.rpartition(":")[2], "--prometheus-port", metrics, "--policy", "round_robin",
        "--log-level", "warn", *more,
    ]  # fmt: skip
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)
        try:
            _wait_for(address, process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        try:
            if HTTP_CLIENT.get(address, "/liveness").is_success:
                return
        except ServingError:
            time.sleep(0.05)


class OlderRouter(ThreadingHTTPServer):
    """A router with the API before version 0.2. It waits for healthy engines only when they are added."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _OlderHandler)
        self.engines: list[str] = []
        self.turn = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        # Clients may disconnect.
        pass


class _OlderHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: OlderRouter

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/list_workers":
            listed = ", ".join(f'"{engine}"' for engine in self.server.engines)
            self._respond(200, f'{{"urls": [{listed}]}}')
        else:
            self._respond(404, "")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        page = urlsplit(self.path)
        engine = parse_qs(page.query).get("url", [""])[0]
        if page.path == "/add_worker":
            self._add(engine)
        elif page.path == "/remove_worker":
            self.server.engines = [one for one in self.server.engines if one != engine]
            self._respond(200, f"Successfully removed worker: {engine}")
        elif page.path == "/generate" and self.server.engines:
            self.server.turn += 1
            to = self.server.engines[self.server.turn % len(self.server.engines)]
            answer = HTTP_CLIENT.post(to, "/generate", {"max_new_tokens": body.count(b"x")}, seconds=PATIENCE)
            self._respond(answer.status, answer.text())
        else:
            self._respond(404, "")

    def _add(self, engine: str) -> None:
        if engine in self.server.engines:
            self._respond(400, f"Worker {engine} already exists")
            return
        while not _is_healthy(engine):
            time.sleep(0.1)
        self.server.engines.append(engine)
        self._respond(200, f"Successfully added worker: {engine}")

    def _respond(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        # Tests inspect the responses instead.
        pass


@contextmanager
def older_router() -> Iterator[str]:
    server = OlderRouter()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.address
    finally:
        server.shutdown()
        server.server_close()


def _is_healthy(engine: str) -> bool:
    try:
        return HTTP_CLIENT.get(engine, "/health").is_success
    except ServingError:
        return False
