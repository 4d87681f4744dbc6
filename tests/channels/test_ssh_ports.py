"""Tests for connections that OpenSSH forwards to pod ports."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.channels.ssh_user import HOST, PIPES, SshUser
from tests.channels.test_port_forward import receive_all
from tests.contracts.pods import poll_until
from tests.support.ports import free_port

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")


@pytest.fixture
def program() -> Iterator[int]:
    """Return the port of a program that reads a whole request and answers with the request reversed."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=(connection,)).start()

    def respond(connection: socket.socket) -> None:
        with connection:
            connection.sendall(receive_all(connection)[::-1])

    thread = threading.Thread(target=answer)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def call(port: int, payload: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=100) as connection:
        connection.sendall(payload)
        connection.shutdown(socket.SHUT_WR)
        return receive_all(connection)


def listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.heavy
def test_ssh_port_forwarding_has_the_same_permissions_and_limits_as_port_forward(
    user: SshUser, program: int
) -> None:
    local, proxy = free_port(), free_port()
    user.start("ssh", "-N", "-L", f"{local}:localhost:{program}", "-D", str(proxy), HOST, **PIPES)
    poll_until(lambda: listens(proxy))
    payloads = [os.urandom(2**19 + number) for number in range(4)]
    with ThreadPoolExecutor(4) as executor:
        answers = [*executor.map(call, [local] * 4, payloads)]
    assert answers == [payload[::-1] for payload in payloads]
    with socket.create_connection(("127.0.0.1", proxy), timeout=100) as connection:
        connection.sendall(bytes((5, 1, 0)))  # SOCKS, as VS Code uses it
        assert connection.recv(2) == bytes((5, 0))
        connection.sendall(bytes((5, 1, 0, 1, 127, 0, 0, 1)) + program.to_bytes(2, "big"))
        assert connection.recv(10, socket.MSG_WAITALL)[1] == 0
        connection.sendall(b"editor")
        connection.shutdown(socket.SHUT_WR)
        assert receive_all(connection) == b"rotide"
    opened = [row for row in user.site.audit("_forward") if row[1] == "open_forward"]
    assert opened[0] == ("dave", "open_forward", {"pod": "worker-0", "run": 1, "port": str(program)})


@pytest.mark.heavy
def test_ports_that_cannot_be_forwarded_are_rejected_with_the_reason(user: SshUser) -> None:
    unused = free_port()
    for target, reason in (
        (f"localhost:{unused}", f"Nothing is listening on port {unused} in the pod."),
        (f"127.0.0.2:{unused}", f"Nothing is listening on port {unused} in the pod."),
        ("example.org:80", "Only ports of the pod itself can be forwarded."),
    ):
        done = user.run("-W", target, HOST)
        assert (done.returncode, reason in done.stderr.decode()) == (255, True), done.stderr
    done = user.run("-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:80", HOST, "true")
    assert (done.returncode, b"remote port forwarding failed" in done.stderr) == (255, True)
