"""Tests for live updates across web processes and lost database connections."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from projects.services import workloads
from tests.cast import Cast, make_cast, training
from tests.support.web_process import web_processes


@pytest.fixture
def addresses(child_env: dict[str, str], tmp_path: Path) -> Iterator[list[str]]:
    """Start two web processes on this test's database and yield their addresses."""
    with web_processes(child_env, tmp_path, 2) as started:
        yield started


def open_socket(address: str, cast: Cast) -> ClientConnection:
    browser = Client()
    browser.force_login(cast.dave.user)
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    url = address.replace("http", "ws", 1) + "/ws/live"
    return connect(url, additional_headers={"Cookie": cookie}, origin=Origin(address), open_timeout=120)


def kinds(socket: ClientConnection, last_kind: str, seconds: float = 120) -> list[str]:
    """Return the kinds of messages received up to the first message of kind `last_kind`."""
    received: list[str] = []
    deadline = time.monotonic() + seconds
    while last_kind not in received:
        received.append(json.loads(socket.recv(timeout=max(0.0, deadline - time.monotonic())))["kind"])
    return received


@pytest.mark.heavy
def test_both_processes_send_updates_after_losing_the_database_connection(
    transactional_db: None, addresses: list[str]
) -> None:
    cast = make_cast()
    with open_socket(addresses[0], cast) as first, open_socket(addresses[1], cast) as second:
        workloads.submit(actor=cast.dave, project=cast.vision, document=training("one"))
        assert kinds(first, "workload")
        assert kinds(second, "workload")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'"
            )
            assert cursor.rowcount >= 2  # this process may still be listening too
        assert kinds(first, "everything")
        assert kinds(second, "everything")
        workloads.submit(actor=cast.dave, project=cast.vision, document=training("two"))
        assert kinds(first, "workload")
        assert kinds(second, "workload")
