"""Limit what a connection can cost before its request reaches the application.

uvicorn limits neither the time that a client takes to send the request headers, nor their length, nor the
number of connections per client.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from copy import copy
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_SECONDS = 10.0
HEAD_MAX = 64 * 1024  # maximum size of the request line and headers in bytes
LINGER_SECONDS = 2.0  # time for the client to read an error response before the connection is reset
# maximum size in bytes of WebSocket messages to Berth itself; pods can receive longer ones
MESSAGE_MAX = 256 * 1024
OVERHEAD = 8  # maximum number of chunk header and trailer bytes per byte of a chunked body


class ConnectionCounter:
    """Counter of open connections per client address. Exempt addresses have no maximum."""

    def __init__(self, maximum: int, is_exempt: Callable[[str], bool]) -> None:
        self.maximum = maximum
        self.is_exempt = is_exempt
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Count one connection. Return False if the address now has too many."""
        self._open[address] += 1
        return self._open[address] <= self.maximum or self.is_exempt(address)

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def protocol_classes(
    counter: ConnectionCounter, is_pod: Callable[[str], bool] = lambda host: False
) -> tuple[type[HttpToolsProtocol], type[WebSocketsSansIOProtocol]]:
    """Return a server's HTTP and WebSocket protocol classes, which share `counter`.

    `is_pod` returns whether a Host header refers to a port of a pod.
    """

    class Http(BoundedHttp):
        connection_counter = counter
        names_pod = staticmethod(is_pod)

    class WebSockets(CountedWebSockets):
        connection_counter = counter

    return Http, WebSockets


class BoundedHttp(HttpToolsProtocol):
    """HTTP protocol that limits the request headers and the number of connections per address."""

    connection_counter: ConnectionCounter
    names_pod: Callable[[str], bool]
    _address: str | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _head_size = 0
    _in_head = True
    _is_rejected = False
    _raw_size = 0  # raw bytes of the current body, including chunk headers
    _body_size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if not self.connection_counter.enter(self._address):
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections from this address.")
            return
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._stop_counting_connection()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._stop_counting_connection()  # from now on, the WebSocket protocol counts this connection
        host = next((value for name, value in self.scope["headers"] if name == b"host"), b"")
        if not self.names_pod(host.decode("latin-1")):
            self.config = copy(self.config)
            self.config.ws_max_size = MESSAGE_MAX
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        if self._is_rejected or self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._head_timer is None:
            self._start_head_timer()
        self._raw_size += len(data)
        super().data_received(data)
        if self._head_timer is not None:
            self._head_size += len(data)
            if self._head_size > HEAD_MAX:
                self._reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request head is too long.")
        elif self._raw_size > HEAD_MAX + OVERHEAD * self._body_size and not idle:
            self.transport.abort()  # the chunk extensions or trailers are too large

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # drop trailers, because they are not used
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_head_timer()
        self._raw_size = self._body_size = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def _start_head_timer(self) -> None:
        self._head_size = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._reject_late_head)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _reject_late_head(self) -> None:
        self._reject(HTTPStatus.REQUEST_TIMEOUT, "The request head took too long to arrive.")

    def _stop_counting_connection(self) -> None:
        if self._address is not None:
            self.connection_counter.leave(self._address)
            self._address = None

    def _reject(self, status: HTTPStatus, reason: str) -> None:
        """Respond and half-close the connection.

        Discard further data until the client closes it or a timeout expires.
        """
        self._cancel_head_timer()
        if self._is_rejected or self.transport.is_closing():
            return
        self._is_rejected = True
        text = f"{reason}\n"
        self.transport.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\nconnection: close\r\n\r\n{text}".encode()
        )
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class CountedWebSockets(WebSocketsSansIOProtocol):
    """WebSocket protocol that counts WebSockets towards the connection limit of the client's address."""

    connection_counter: ConnectionCounter
    _address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.connection_counter.enter(self._address)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.connection_counter.leave(self._address)
            self._address = None
        super().connection_lost(exc)
