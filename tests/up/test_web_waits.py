"""Tests that the web process waits for the database tables before it responds."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from berth.server.up.address import address_of, take, wait_until_it_answers
from tests.up.test_supervisor import ENV


def test_request_during_migrations_waits_for_them(tmp_path: Path) -> None:
    env = {**ENV, "BERTH_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "berth.server.settings"}
    starts, holds_back = os.pipe()
    answered_at: list[float] = []
    with take("127.0.0.1", 0) as listening:
        address = address_of(listening)
        web = subprocess.Popen(
            [sys.executable, "-m", "berth.server.up.web", str(listening.fileno()), str(starts)],
            env=env, pass_fds=(listening.fileno(), starts), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(starts)

        def call() -> None:
            if wait_until_it_answers(address, goes_on=lambda: web.poll() is None, seconds=30):
                answered_at.append(time.monotonic())

        caller = threading.Thread(target=call)
        try:
            caller.start()
            with socket.create_connection(listening.getsockname(), timeout=5) as early:
                early.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                early.settimeout(3)
                try:
                    response = early.recv(100)
                except TimeoutError:
                    response = b"nothing yet"
                assert response == b"nothing yet"
                released_at = time.monotonic()
                os.close(holds_back)
                early.settimeout(30)
                assert b"200" in early.recv(100)
            caller.join(30)
            assert answered_at
            assert answered_at[0] >= released_at
        finally:
            web.kill()
            web.wait()
            caller.join()
