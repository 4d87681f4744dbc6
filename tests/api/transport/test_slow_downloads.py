"""Tests for large downloads to slow clients."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from berth.server.asgi import berth
from projects.models import Audit
from tests.api.conftest import Caller
from tests.api.test_code import submit, upload
from tests.cast import Cast
from tests.contracts.pods import poll_until
from tests.port_proxy.pod import served

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 2**20


@pytest.fixture
def port(cast: Cast, settings: Any, tmp_path: Path) -> Iterator[int]:
    settings.BERTH_CODE_STORE = str(tmp_path / "code")
    settings.BERTH_LOCAL_URL = "http://127.0.0.1:8000"
    with served(berth) as port:
        yield port


def count_connections() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND backend_type = 'client backend' "
            "AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


def begin(port: int, path: str, header: str) -> tuple[socket.socket, bytes]:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", port))
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\n"
    client.sendall(f"{request}Connection: close\r\n\r\n".encode())
    return client, client.recv(1000)


def read_rest(reader: socket.socket) -> bytes:
    return b"".join(iter(lambda: reader.recv(MIB), b""))


@pytest.mark.heavy
def test_slow_code_download_holds_no_database_connection(port: int, dave: Caller) -> None:
    content = os.urandom(8 * MIB)
    workload = submit(dave, upload(dave, {"weights": content})).json()["id"]
    before = count_connections()
    reader, start = begin(port, f"/api/v1/workloads/{workload}/code", f"Authorization: Bearer {dave.secret}")
    with reader:
        assert start.startswith(b"HTTP/1.1 200 OK")
        poll_until(lambda: count_connections() <= before)
        assert content in start + read_rest(reader)


@pytest.mark.heavy
def test_slow_export_holds_no_database_connection(port: int, cast: Cast, client: Client) -> None:
    client.force_login(cast.alice.user)
    Audit.objects.bulk_create(
        Audit(actor="alice", action="edit", object_name=f"n{number}-{'x' * 180}") for number in range(40_000)
    )
    before = count_connections()
    cookie = f"Cookie: sessionid={client.cookies['sessionid'].value}"
    reader, start = begin(port, "/activity?format=csv", cookie)
    with reader:
        assert start.startswith(b"HTTP/1.1 200 OK")
        poll_until(lambda: count_connections() <= before)
        text = start + read_rest(reader)
        assert b"n0" in text
        assert b"n39999" in text
