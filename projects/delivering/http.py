"""Here one letter is posted to one destination: no redirects, no proxies, not for long."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from projects.delivering.destination import Destination

PATIENCE_SECONDS = 10.0
SHOWN = 200


class NotTaken(Exception):
    """It was not delivered; the text says what was answered. `for_good`: trying again is of no use."""

    def __init__(self, text: str, *, for_good: bool = False) -> None:
        super().__init__(text)
        self.for_good = for_good


def post(to: Destination, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises NotTaken, OSError."""
    visit = _connection(to)
    plain = socket.create_connection((to.address, to.port), timeout=PATIENCE_SECONDS)
    try:
        with _not_for_long(plain):
            visit.sock = _secured(plain, to)
            visit.request("POST", to.path, body, {**headers, "Content-Type": "application/json"})
            answer = visit.getresponse()
            told = _readable(answer.read(SHOWN))
    except http.client.HTTPException as error:
        raise NotTaken(f"the answer cannot be read: {error!r}") from None
    finally:
        visit.close()
        plain.close()
    if not 200 <= answer.status < 300:
        gone = answer.status == http.HTTPStatus.GONE
        raise NotTaken(f"answered {answer.status}: {told}", for_good=gone)


def _connection(to: Destination) -> http.client.HTTPConnection:
    """It writes the name into the request; whom it talks to is settled by its socket."""
    kind = http.client.HTTPSConnection if to.secure else http.client.HTTPConnection
    return kind(to.host, to.port, timeout=PATIENCE_SECONDS)


def _secured(plain: socket.socket, to: Destination) -> socket.socket:
    if not to.secure:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host)


@contextmanager
def _not_for_long(plain: socket.socket) -> Iterator[None]:
    """Hangs up when all of it takes too long: a socket's own timeout begins anew with every byte that comes,
    and one receiver could keep everybody's news waiting."""
    ours = plain.dup()  # securing a socket takes its handle away
    over = threading.Timer(PATIENCE_SECONDS, _hang_up, [ours])
    over.start()
    try:
        yield
    finally:
        over.cancel()
        over.join()
        ours.close()


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):  # it is down already
        line.shutdown(socket.SHUT_RDWR)


def _readable(answer: bytes) -> str:
    """On one line, without what hides in it: the database takes no NUL, a log no escapes."""
    text = answer.decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
