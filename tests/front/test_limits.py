"""Tests for the limits of a web process on bodies, headers, connections and database connections."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest
from django.conf import settings
from django.db import connection
from django.test import Client as Browser
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from berth.server.api.parsers import BODY_MAX
from berth.server.front.protocol import MESSAGE_MAX
from projects.services.people import tokens
from tests.cast import make_cast
from tests.conftest import env_of_children
from tests.support.web_process import web_processes

PATIENCE = 180.0
CHUNK = b"x" * 65536
# Starts the web process with a shorter time limit for request headers.
IMPATIENT_PROGRAM = """
from berth.server.front import protocol
from berth.server.up.serve import main
protocol.HEAD_SECONDS = 4.0
main()
"""
CLOSE_OTHERS = """
    SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


@pytest.fixture(scope="module")
def address(django_db_setup: None, postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("limits")
    more = {"BERTH_CONNECTIONS_PER_ADDRESS": "20", "TMPDIR": str(home)}
    with web_processes({**env_of_children(postgres), **more}, home, program=("-c", IMPATIENT_PROGRAM)) as (
        address,
    ):
        yield address


def open_connection(address: str) -> socket.socket:
    url = urlsplit(address)
    assert url.hostname and url.port
    return socket.create_connection((url.hostname, url.port), timeout=PATIENCE)


def read_response(connection: socket.socket) -> tuple[int, bytes]:
    """Return the status and all data that arrives until the connection ends."""
    data = b""
    while part := connection.recv(65536):
        data += part
    return int(data.split(b" ", 2)[1]) if data else 0, data


def post(address: str, path: str, *headers: str, size: int, chunked: bool) -> tuple[int, bytes, int]:
    """Send the whole body before reading, as most clients do. Return the status, the data and the number of
    bytes sent.
    """
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", length, *headers, "", ""])
    sent = 0
    with open_connection(address) as connection:
        connection.sendall(head.encode())
        while sent < size:
            piece = CHUNK[: size - sent]
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            sent += len(piece)
        if chunked:
            connection.sendall(b"0\r\n\r\n")
        status, data = read_response(connection)
    return status, data, sent


@pytest.mark.parametrize("path", ["/login", "/admin/login/", "/nothing", "/api/v1/login"])
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "announced"])
def test_oversized_body_is_rejected_without_authentication(address: str, path: str, chunked: bool) -> None:
    status, data, sent = post(address, path, size=64 * BODY_MAX, chunked=chunked)
    assert (status, sent) == (413, 64 * BODY_MAX), "the client reads the response instead of a reset"
    assert b"connection: close" in data.lower()
    if path.startswith("/api/"):
        assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "too-large"


def test_large_session_call_requires_a_valid_token(address: str) -> None:
    path = "/api/v1/sessions/00000000-0000-0000-0000-000000000000/calls"
    for headers in ((), ("Authorization: Bearer berth_guessed",)):
        status, data, _ = post(address, path, *headers, size=4 * BODY_MAX, chunked=True)
        assert status == 401
        assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "unauthenticated"


def test_body_within_the_limit_is_accepted_in_chunks(address: str) -> None:
    status, data, _ = post(address, "/api/v1/login", "Content-Type: application/json", "Connection: close",
                             size=BODY_MAX, chunked=True)  # fmt: skip
    assert status == 400, data
    assert json.loads(data.partition(b"\r\n\r\n")[2])["code"] == "malformed"


def test_connection_without_complete_headers_is_closed(address: str) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(open_connection(address)) for _ in range(3)]
        beginnings = (b"", b"\r\n", b"GET /login HTTP/1.1\r\nHost: local")
        for connection, beginning in zip(connections, beginnings, strict=True):
            connection.sendall(beginning)
        assert [read_response(connection)[0] for connection in connections] == [408, 408, 408]


def test_endless_headers_are_rejected(address: str) -> None:
    with open_connection(address) as connection:
        connection.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        try:
            for _ in range(64):
                connection.sendall(CHUNK)
            assert read_response(connection)[0] == 431
        except (BrokenPipeError, ConnectionResetError):
            pass  # the response may be lost because the server stopped reading


def test_endless_trailers_are_rejected(address: str) -> None:
    with open_connection(address) as connection:
        connection.sendall(
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
        )
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1024):
                connection.sendall(CHUNK)


def test_connections_per_address_are_limited(address: str) -> None:
    held: list[socket.socket] = []
    try:
        for _ in range(25):
            connection = open_connection(address)
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            held.append(connection)
        rejected = read_response(held[-1])
        assert rejected[0] == 503
        assert b"Too many connections from this address" in rejected[1]
    finally:
        for connection in held:
            connection.close()
    deadline = time.monotonic() + PATIENCE
    while True:  # wait until the closed connections are no longer counted
        with open_connection(address) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status = read_response(connection)[0]
        if status == 200:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_request_succeeds_after_the_database_closed_all_connections(
    transactional_db: None, address: str
) -> None:
    cast = make_cast()
    secret = tokens.issue(actor=cast.dave, name="t", scopes=["read"], expires_at=None)[1]

    def whoami_status() -> int:
        headers = {"Authorization": f"Bearer {secret}"}
        return httpx.get(f"{address}/api/v1/whoami", headers=headers, timeout=60, trust_env=False).status_code

    with connection.cursor() as cursor:
        for _ in range(5):
            assert whoami_status() == 200
            cursor.execute(CLOSE_OTHERS)
            assert cursor.fetchone()[0] > 0
    assert whoami_status() == 200


def test_long_websocket_message_closes_the_connection(address: str, transactional_db: None) -> None:
    browser = Browser()
    browser.force_login(make_cast().dave.user)
    name = settings.SESSION_COOKIE_NAME
    headers = {"Cookie": f"{name}={browser.cookies[name].value}"}
    url = f"{address.replace('http', 'ws')}/ws/live"
    with connect(url, origin=Origin(address), additional_headers=headers) as live:
        live.send(b"x" * MESSAGE_MAX)
        assert live.ping().wait(PATIENCE)
        with pytest.raises(ConnectionClosed) as closed:
            live.send(b"x" * (MESSAGE_MAX + 1))
            while True:
                live.recv(timeout=PATIENCE)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
