"""Tests that the web process waits for the database tables before it responds."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from berth.server.up.address import bind_socket, socket_url, wait_until_ready
from tests.up.test_supervisor import ENV


@pytest.mark.heavy
def test_request_during_migrations_waits_for_them(tmp_path: Path) -> None:
    env = {**ENV, "BERTH_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "berth.server.settings"}
    starts, start_gate = os.pipe()
    answered_at: list[float] = []
    with bind_socket("127.0.0.1", 0) as listening:
        address = socket_url(listening)
        web = subprocess.Popen(
            [sys.executable, "-m", "berth.server.up.web", str(listening.fileno()), str(starts)],
            env=env, pass_fds=(listening.fileno(), starts), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(starts)

        def call() -> None:
            if wait_until_ready(address, should_continue=lambda: web.poll() is None, seconds=30):
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
                os.close(start_gate)
                early.settimeout(30)
                assert b"200" in early.recv(100)
            caller.join(30)
            assert answered_at
            assert answered_at[0] >= released_at
        finally:
            web.kill()
            web.wait()
            caller.join()
