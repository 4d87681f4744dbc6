"""Bind the public address, and wait until the server responds there."""

import http.client
import socket
import time
from collections.abc import Callable

from berth.server.up.trouble import CannotStart

FIRST_PORT = 8000
TRIES = 50


def take(host: str, port: int | None) -> socket.socket:
    """Return a listening socket that outlives restarts of the web process, so that clients can wait."""
    wanted = range(FIRST_PORT, FIRST_PORT + TRIES) if port is None else [port]
    for number in wanted:
        try:
            return _listen(host, number)
        except OSError as error:
            reason = error.strerror or str(error)
    if port is None:
        raise CannotStart(f"Every port from {wanted[0]} to {wanted[-1]} is in use. Choose one with --port.")
    raise CannotStart(f"{host}:{port} cannot be used ({reason}). Choose another one with --port.")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    listening.set_inheritable(True)
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


def wait_until_it_answers(address: str, *, goes_on: Callable[[], bool], seconds: float = 90) -> bool:
    """Return False if the server does not respond in time, or once `goes_on` returns False."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and goes_on():
        visit = http.client.HTTPConnection(address.removeprefix("http://"), timeout=5)
        try:
            visit.request("GET", "/healthz")
            if visit.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            visit.close()
        time.sleep(0.05)
    return False
