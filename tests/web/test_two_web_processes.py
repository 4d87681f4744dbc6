"""Here we show that pages hear of changes whichever web process serves them, also after a lost connection."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from websockets.sync.client import ClientConnection, connect

from berth.up.address import address_of, take, wait_until_it_answers
from projects.services import workloads
from tests.cast import Cast, make_cast, training


@pytest.fixture
def webs(child_env: dict[str, str], tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two web processes on this test's database."""
    env = {**child_env, "BERTH_HOME": str(tmp_path), "BERTH_SECRET_KEY": settings.SECRET_KEY}
    running, addresses = [], []
    starts, holds_back = os.pipe()
    os.close(holds_back)
    for _ in range(2):
        with take("127.0.0.1", 0) as listening:
            number = listening.fileno()
            command = [sys.executable, "-m", "berth.up.web", str(number), str(starts)]
            running.append(
                subprocess.Popen(command, env=env, pass_fds=(number, starts), stderr=subprocess.DEVNULL)
            )
            addresses.append(address_of(listening))
    os.close(starts)
    for web, address in zip(running, addresses, strict=True):
        assert wait_until_it_answers(address, goes_on=lambda web=web: web.poll() is None, seconds=40)
    yield addresses
    for web in running:
        web.terminate()
    for web in running:
        web.wait(20)


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
