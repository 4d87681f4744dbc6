"""Connect to a checked address within a time limit."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from projects.delivering.destination import Destination


@contextmanager
def line(to: Destination, seconds: float) -> Iterator[http.client.HTTPConnection]:
    """It writes the name into requests; whom it talks to is settled by its socket. No proxies.

    It is hung up when all of it takes longer: a socket's own timeout begins anew with every byte that comes.
    """
    kind = http.client.HTTPSConnection if to.secure else http.client.HTTPConnection
    visit = kind(to.host, to.port, timeout=seconds)
    plain = socket.create_connection((to.address, to.port), timeout=seconds)
    try:
        with _not_for_long(plain, seconds):
            visit.sock = _secured(plain, to)
            yield visit
    finally:
        visit.close()
        plain.close()


def _secured(plain: socket.socket, to: Destination) -> socket.socket:
    if not to.secure:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host)


@contextmanager
def _not_for_long(plain: socket.socket, seconds: float) -> Iterator[None]:
    ours = plain.dup()  # securing a socket takes its handle away
    over = threading.Timer(seconds, _hang_up, [ours])
    over.daemon = True
    over.start()
    try:
        yield
    finally:
        over.cancel()
        over.join()
        ours.close()


def _hang_up(socket_: socket.socket) -> None:
    with suppress(OSError):  # it is down already
        socket_.shutdown(socket.SHUT_RDWR)
