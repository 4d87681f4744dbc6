"""Claims about what a stranger can cost the web process: bodies, heads and connections, over real sockets."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from berth.server.api.parsers import BODY_MAX
from tests.web_process import web_processes

PATIENCE = 60.0
PIECE = b"x" * 65536


@pytest.fixture
def address(child_env: dict[str, str], tmp_path: Path) -> Iterator[str]:
    more = {"BERTH_CONNECTIONS_PER_ADDRESS": "20", "TMPDIR": str(tmp_path)}
    with web_processes({**child_env, **more}, tmp_path) as (address,):
        yield address


def opened(address: str) -> socket.socket:
    where = urlsplit(address)
    assert where.hostname and where.port
    return socket.create_connection((where.hostname, where.port), timeout=PATIENCE)


def answer(line: socket.socket) -> tuple[int, bytes]:
    """Status and everything up to the end of the connection."""
    data = b""
    while part := line.recv(65536):
        data += part
    return int(data.split(b" ", 2)[1]) if data else 0, data


def posted(address: str, path: str, *headers: str, size: int, chunked: bool) -> tuple[int, bytes, int]:
    """Send the whole body before reading, as most clients do; the last value is what was sent."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", length, *headers, "", ""])
    sent = 0
    with opened(address) as line:
        line.sendall(head.encode())
        while sent < size:
            piece = PIECE[: size - sent]
            line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            sent += len(piece)
        if chunked:
            line.sendall(b"0\r\n\r\n")
        status, data = answer(line)
    return status, data, sent


@pytest.mark.parametrize("path", ["/login", "/admin/login/", "/nothing", "/api/v1/login"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "announced"])
def test_stranger_cannot_store_long_body(address: str, tmp_path: Path, path: str, chunked: bool) -> None:
    status, data, sent = posted(address, path, size=64 * BODY_MAX, chunked=chunked)
    assert (status, sent) == (413, 64 * BODY_MAX), "the client reads the answer, not a reset"
    assert b"connection: close" in data.lower()
    if path.startswith("/api/"):
        assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "too-large"


def test_large_body_of_session_calls_needs_valid_token(address: str) -> None:
    path = "/api/v1/sessions/00000000-0000-0000-0000-000000000000/calls"
    for headers in ((), ("Authorization: Bearer berth_guessed",)):
        status, data, _ = posted(address, path, *headers, size=4 * BODY_MAX, chunked=True)
        assert status == 401
        assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "unauthenticated"


def test_body_within_limit_is_accepted_in_chunks(address: str) -> None:
    status, data, _ = posted(address, "/api/v1/login", "Content-Type: application/json", "Connection: close",
                             size=BODY_MAX, chunked=True)  # fmt: skip
    assert status == 400, data
    assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "malformed"


@pytest.mark.parametrize("start", [b"", b"\r\n", b"GET /login HTTP/1.1\r\nHost: local"])
def test_connection_without_complete_head_is_closed(address: str, start: bytes) -> None:
    with opened(address) as line:
        line.sendall(start)
        assert answer(line)[0] == 408


def test_head_without_end_is_refused(address: str) -> None:
    with opened(address) as line:
        line.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        try:
            for _ in range(64):
                line.sendall(PIECE)
            assert answer(line)[0] == 431
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer may be lost; what counts is that the server stopped reading


def test_trailers_without_end_are_cut_off(address: str) -> None:
    with opened(address) as line:
        line.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1024):
                line.sendall(PIECE)


def test_one_address_cannot_take_every_connection(address: str) -> None:
    held: list[socket.socket] = []
    try:
        for _ in range(25):
            line = opened(address)
            line.sendall(b"GET /healthz HTTP/1.1\r\n")
            held.append(line)
        refused = answer(held[-1])
        assert refused[0] == 503
        assert b"Too many connections from this address" in refused[1]
    finally:
        for line in held:
            line.close()
    deadline = time.monotonic() + PATIENCE
    while True:  # the closed ones count no more
        with opened(address) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = answer(line)[0]
        if status == 200:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)
