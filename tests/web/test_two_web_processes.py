"""Live updates across web processes and lost connections."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from websockets.sync.client import ClientConnection, connect

from projects.services import workloads
from tests.cast import Cast, make_cast, training
from tests.web_process import web_processes


@pytest.fixture
def webs(child_env: dict[str, str], tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two web processes on this test's database."""
    with web_processes(child_env, tmp_path, 2) as addresses:
        yield addresses


def page(address: str, cast: Cast) -> ClientConnection:
    """An open page of dave's."""
    browser = Client()
    assert cast.dave.user is not None
    browser.force_login(cast.dave.user)
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    url = address.replace("http", "ws", 1) + "/ws/live"
    return connect(url, additional_headers={"Cookie": cookie}, origin=address, open_timeout=20)  # type: ignore[arg-type]


def kinds(of: ClientConnection, wanted: str, seconds: float = 20) -> list[str]:
    """What it hears up to the one that is waited for."""
    heard: list[str] = []
    deadline = time.monotonic() + seconds
    while wanted not in heard:
        heard.append(json.loads(of.recv(timeout=max(0.0, deadline - time.monotonic())))["kind"])
    return heard


def test_both_hear_of_one_change_also_after_their_listeners_lost_the_database(
    transactional_db: None, webs: list[str]
) -> None:
    cast = make_cast()
    with page(webs[0], cast) as first, page(webs[1], cast) as second:
        workloads.submit(acting=cast.dave, project=cast.vision, document=training("one"))
        assert kinds(first, "workload")
        assert kinds(second, "workload")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'"
            )
            assert cursor.rowcount >= 2  # this process may still listen, too
        assert kinds(first, "everything")
        assert kinds(second, "everything")
        workloads.submit(acting=cast.dave, project=cast.vision, document=training("two"))
        assert kinds(first, "workload")
        assert kinds(second, "workload")
