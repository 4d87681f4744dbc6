"""Tests for `berth port-forward` through a real server."""

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.channels.conftest import Site
from tests.contracts.pods import poll_until

PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.fixture
def program() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def forward(site: Site, *arguments: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    running = site.start("port-forward", "train", *arguments, **PIPES)
    assert running.stdout is not None
    count = len([argument for argument in arguments if not argument.startswith("-")])
    lines = [running.stdout.readline().decode() for _ in range(count)]
    matches = [
        re.match(r"127\.0\.0\.1:(\d+) is forwarded to port \S+ of vision/train\n", line) for line in lines
    ]
    return running, [int(match[1]) for match in matches if match]


def receive_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.heavy
def test_several_connections_transfer_data_in_both_directions(site: Site, program: socket.socket) -> None:
    def answer() -> None:
        while True:
            try:
                connection, _ = program.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=(connection,)).start()

    def respond(connection: socket.socket) -> None:
        with connection:  # the response follows the end of the request, so it needs a half-closed connection
            connection.sendall(receive_all(connection)[::-1])

    thread = threading.Thread(target=answer)
    thread.start()
    running, (first, second) = forward(site, f"0:{program.getsockname()[1]}", f"0:{program.getsockname()[1]}")
    payloads = [os.urandom(2**20 + number) for number in range(6)]

    def call(port: int, payload: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=100) as connection:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            return receive_all(connection)

    with ThreadPoolExecutor(6) as executor:
        answers = [*executor.map(call, [first, second] * 3, payloads)]
    assert answers == [payload[::-1] for payload in payloads]
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130, b"")
    program.shutdown(socket.SHUT_RDWR)
    thread.join()
    opened = poll_until(lambda: site.audit("_forward"), lambda rows: len(rows) == 16)
    port = str(program.getsockname()[1])
    assert opened[0] == ("dave", "open_forward", {"pod": "worker-0", "run": 1, "port": port})


@pytest.mark.heavy
def test_eof_from_the_program_is_forwarded_while_the_client_is_sending(
    site: Site, program: socket.socket
) -> None:
    _, (port,) = forward(site, f"0:{program.getsockname()[1]}")
    program.accept()[0].close()  # the command tries the port when it starts
    with socket.create_connection(("127.0.0.1", port), timeout=100) as client:
        inside, _ = program.accept()
        with inside:
            inside.sendall(b"bye")
            inside.shutdown(socket.SHUT_WR)
            assert receive_all(client) == b"bye"
            client.sendall(b"still here")
            client.shutdown(socket.SHUT_WR)
            assert receive_all(inside) == b"still here"
    with socket.create_connection(("127.0.0.1", port), timeout=100) as client:
        inside, _ = program.accept()
        client.close()
        assert receive_all(inside) == b""
        inside.close()


@pytest.mark.heavy
def test_errors_distinguish_silent_ports_invalid_ports_and_missing_roles(site: Site) -> None:
    reserved = socket.socket()  # the port is bound, but nothing is listening
    reserved.bind(("127.0.0.1", 0))
    unused = reserved.getsockname()[1]
    running, (port,) = forward(site, f"0:{unused}")
    assert running.stderr is not None
    message = f"berth: Nothing is listening on port {unused} in the pod."
    assert running.stderr.readline().decode().startswith(message)
    client = socket.create_connection(("127.0.0.1", port), timeout=100)
    with client, pytest.raises(ConnectionResetError):
        client.recv(1)
    assert running.stderr.readline().decode() == f"{message}\n"
    for arguments, code, expected in (
        (("0",), 2, "is not a valid port"),
        (("70000",), 2, "is not a valid port"),
        (("x:1",), 2, "is not a valid port"),
        (("jupyter",), 2, "the pod has no port named 'jupyter'; its named ports: none"),
        ((f"{unused}:1",), 2, "is not available: Address already in use"),
        (("1", "--address", "0.0.0.0"), 2, "Add --expose"),
        (("1", "--address", "localhost"), 2, "is not a valid IP address"),
        (("1", "--pod", "worker-7"), 4, "There is no pod"),
    ):
        rejected = site.run("port-forward", "train", *arguments)
        assert (rejected.returncode, expected in rejected.stderr) == (code, True), (arguments, rejected)
    reserved.close()
