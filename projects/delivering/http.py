"""Post one message to a checked address within a time limit, without redirects or proxies."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from projects.delivering.destination import Destination

TIMEOUT_SECONDS = 10.0
MAX_ANSWER = 200


class DeliveryError(Exception):
    """The message was not delivered. `permanent` is True if another attempt cannot succeed."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


def post(to: Destination, body: bytes, headers: Mapping[str, str]) -> None:
    """Send the body. Raises DeliveryError, OSError."""
    try:
        with connected(to, TIMEOUT_SECONDS) as connection:
            connection.request("POST", to.path, body, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            text_received = readable(answer.read(MAX_ANSWER))
    except http.client.HTTPException as error:
        raise DeliveryError(f"invalid HTTP response: {error!r}") from None
    if not 200 <= answer.status < 300:
        is_gone = answer.status == http.HTTPStatus.GONE
        raise DeliveryError(
            f"the server responded with {answer.status}: {text_received}".removesuffix(": "),
            permanent=is_gone,
        )


def readable(answer: bytes) -> str:
    """Return the response as one printable line: PostgreSQL rejects NUL, and logs need no escapes."""
    text = answer.decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


@contextmanager
def connected(to: Destination, seconds: float) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to the checked address that sends the host name in its requests.

    The connection is shut down after `seconds` in total, because a socket's own timeout restarts with every
    byte received.
    """
    kind = http.client.HTTPSConnection if to.secure else http.client.HTTPConnection
    connection = kind(to.host, to.port, timeout=seconds)
    plain = socket.create_connection((to.address, to.port), timeout=seconds)
    try:
        with _deadline(plain, seconds):
            connection.sock = _with_tls(plain, to)
            yield connection
    finally:
        connection.close()
        plain.close()


def _with_tls(plain: socket.socket, to: Destination) -> socket.socket:
    if not to.secure:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host)


@contextmanager
def _deadline(plain: socket.socket, seconds: float) -> Iterator[None]:
    duplicate = plain.dup()  # TLS takes over the socket's handle
    timer = threading.Timer(seconds, _hang_up, [duplicate])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        duplicate.close()


def _hang_up(socket_: socket.socket) -> None:
    with suppress(OSError):  # already closed
        socket_.shutdown(socket.SHUT_RDWR)
