"""Here one letter is posted to one destination: no redirects, no proxies, not for long."""

import http.client
import socket
import ssl
from collections.abc import Mapping

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
    try:
        visit.sock = _connected(to)
        visit.request("POST", to.path, body, {**headers, "Content-Type": "application/json"})
        answer = visit.getresponse()
        told = answer.read(SHOWN).decode(errors="replace")
    except http.client.HTTPException as error:
        raise NotTaken(f"the answer cannot be read: {error!r}") from None
    finally:
        visit.close()
    if not 200 <= answer.status < 300:
        gone = answer.status == http.HTTPStatus.GONE
        raise NotTaken(f"answered {answer.status}: {told}", for_good=gone)


def _connection(to: Destination) -> http.client.HTTPConnection:
    """It writes the name into the request; whom it talks to is settled by its socket."""
    kind = http.client.HTTPSConnection if to.secure else http.client.HTTPConnection
    return kind(to.host, to.port, timeout=PATIENCE_SECONDS)


def _connected(to: Destination) -> socket.socket:
    plain = socket.create_connection((to.address, to.port), timeout=PATIENCE_SECONDS)
    if not to.secure:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=to.host)
