"""Tests for single requests to an API server."""

import base64
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pools.kubernetes.api_server.api import Api, Unreachable
from pools.kubernetes.api_server.credentials import Connection

COMPRESSED = gzip.compress(b"{}")
DAMAGED = {
    "header": b"\x1f\x8b damaged",
    "data": COMPRESSED[:10] + b"\xff" + COMPRESSED[11:],
    "end": COMPRESSED[:-4],
}


class Server(ThreadingHTTPServer):
    """A server whose responses contain the requests. It may close connections after each response."""

    daemon_threads = True
    closes = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = json.dumps({"target": self.path, "client": self.client_address[1], "headers": headers})
        content = body.encode()
        if "damaged" in self.path:
            content = DAMAGED[self.path.removeprefix("/damaged/")]
        elif "gzip" in headers.get("accept-encoding", ""):
            content = gzip.compress(content)
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.server.closes  # close the connection without telling the client

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_requests_share_a_connection_and_responses_are_decompressed(server: Server) -> None:
    api = Api(Connection(server=server.address, token="secret"))
    first, second = (api.get("/api/v1/nodes", limit=5, fieldSelector="a=b&c") for _ in range(2))
    assert first["target"] == "/api/v1/nodes?limit=5&fieldSelector=a%3Db%26c"
    assert first["headers"]["authorization"] == "Bearer secret"
    assert first["client"] == second["client"]
    api.close()


def test_path_in_the_server_url_is_prepended_to_request_paths(server: Server) -> None:
    api = Api(Connection(server=f"{server.address}/clusters/c-1/", token="secret"))
    assert api.get("/api/v1/nodes")["target"] == "/clusters/c-1/api/v1/nodes"
    api.close()


def test_request_is_repeated_if_the_server_has_closed_its_connection(server: Server) -> None:
    server.closes = True
    api = Api(Connection(server=server.address, token="secret"))
    clients = {api.get("/api/v1/nodes")["client"] for _ in range(3)}
    assert len(clients) == 3
    api.close()


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_response_is_reported_as_a_server_error(server: Server, damage: str) -> None:
    api = Api(Connection(server=server.address, token="secret"))
    with pytest.raises(Unreachable, match="cannot be decompressed"):
        api.get(f"/damaged/{damage}")
    api.close()


def test_requests_use_the_proxy_and_its_password(server: Server) -> None:
    proxy = server.address.replace("http://", "http://user:pass@")
    api = Api(Connection(server="http://cluster.example:6443", token="secret", proxy=proxy))
    request = api.get("/api/v1/nodes")
    assert request["target"] == "http://cluster.example:6443/api/v1/nodes"
    password = base64.b64encode(b"user:pass").decode()
    assert request["headers"]["proxy-authorization"] == f"Basic {password}"
    assert request["headers"]["host"] == "cluster.example:6443"
    api.close()
