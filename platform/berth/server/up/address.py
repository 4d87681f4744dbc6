"""Bind the public address, and wait until the server responds there."""

import socket
import time
from collections.abc import Callable

from berth.server.up.errors import StartupError

FIRST_PORT = 8000
TRIES = 50
WAITING_CONNECTIONS = 512
STATUS_LINE_MAX = 64
SERVER_ERROR = 500


def bind_socket(host: str, port: int | None) -> socket.socket:
    """Return a listening socket that keeps clients waiting while the web process restarts. Raises
    StartupError.
    """
    ports = range(FIRST_PORT, FIRST_PORT + TRIES) if port is None else [port]
    for number in ports:
        try:
            return _listen(host, number)
        except OSError as error:
            reason = error.strerror or str(error)
    if port is None:
        raise StartupError(
            f"Every port from {ports[0]} to {ports[-1]} is in use. Choose another port with --port."
        )
    raise StartupError(f"{host}:{port} cannot be used ({reason}). Choose another port with --port.")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(WAITING_CONNECTIONS)
    except OSError:
        listening.close()
        raise
    listening.set_inheritable(True)
    return listening


def socket_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


def wait_until_ready(address: str, *, should_continue: Callable[[], bool], seconds: float = 90) -> bool:
    """Wait until the server responds.

    Return False after `seconds` or when `should_continue` returns False.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and should_continue():
        if _responds(address.removeprefix("http://")):
            return True
        time.sleep(0.05)
    return False


def _responds(host: str) -> bool:
    """Return whether the server responds without an error."""
    name, _, port = host.rpartition(":")
    request = f"GET /healthz HTTP/1.0\r\nHost: {host}\r\n\r\n"
    try:
        with socket.create_connection((name.strip("[]"), int(port)), timeout=5) as connection:
            connection.sendall(request.encode())
            _, status, *_ = connection.recv(STATUS_LINE_MAX).split(maxsplit=2)
            return int(status) < SERVER_ERROR
    except (OSError, ValueError):
        return False
