"""Post one message to a validated address, with a total timeout and without redirects or proxies."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from projects.delivering.destination import Destination

TIMEOUT_SECONDS = 10.0
MAX_RESPONSE_BYTES = 200


class DeliveryError(Exception):
    """Raised if the message was not delivered. `permanent` is True if a retry cannot succeed."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


def post(to: Destination, body: bytes, headers: Mapping[str, str]) -> None:
    """Post the body as JSON. Raises DeliveryError or OSError."""
    try:
        with open_connection(to, TIMEOUT_SECONDS) as connection:
            connection.request("POST", to.path, body, {**headers, "Content-Type": "application/json"})
            response = connection.getresponse()
            text_received = to_printable_line(response.read(MAX_RESPONSE_BYTES))
    except http.client.HTTPException as error:
        raise DeliveryError(f"invalid HTTP response: {error!r}") from None
    if not 200 <= response.status < 300:
        is_gone = response.status == http.HTTPStatus.GONE
        raise DeliveryError(
            f"the server responded with {response.status}: {text_received}".removesuffix(": "),
            permanent=is_gone,
        )


def to_printable_line(response: bytes) -> str:
    """Convert the response to one printable line that PostgreSQL and logs can store."""
    text = response.decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@contextmanager
def open_connection(to: Destination, seconds: float) -> Iterator[http.client.HTTPConnection]:
    """Yield an HTTP connection to the validated address.

    Its requests still send the URL's host name. The connection is shut down after `seconds` in total, because
    a socket's own timeout restarts with every byte.
    """
    kind = http.client.HTTPSConnection if to.secure else http.client.HTTPConnection
    connection = kind(to.host, to.port, timeout=seconds)
    raw_socket = socket.create_connection((to.address, to.port), timeout=seconds)
    try:
        with _enforce_deadline(raw_socket, seconds):
            connection.sock = _wrap_tls(raw_socket, to)
            yield connection
    finally:
        connection.close()
        raw_socket.close()


def _wrap_tls(raw_socket: socket.socket, to: Destination) -> socket.socket:
    if not to.secure:
        return raw_socket
    return ssl.create_default_context().wrap_socket(raw_socket, server_hostname=to.host)


@contextmanager
def _enforce_deadline(raw_socket: socket.socket, seconds: float) -> Iterator[None]:
    duplicate = raw_socket.dup()  # TLS takes over the handle of the original socket
    timer = threading.Timer(seconds, _shut_down, [duplicate])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        duplicate.close()


def _shut_down(socket_: socket.socket) -> None:
    with suppress(OSError):  # the connection is already closed
        socket_.shutdown(socket.SHUT_RDWR)
