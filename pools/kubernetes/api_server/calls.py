"""Send single HTTP requests to an API server over persistent connections.

This module uses `httpcore` directly, because `httpx` on top of it would take about 40% of each request's CPU
time.
"""

import gzip
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import httpcore
import httpx

CONNECT_SECONDS, SECONDS = 5.0, 20.0
TIMEOUTS = {"connect": CONNECT_SECONDS, "read": SECONDS, "write": SECONDS, "pool": SECONDS}
CONNECTIONS_MAX = 64
IDLE_SECONDS = 30.0  # an idle connection is closed after this time
# Errors that can occur because an idle connection was closed before it was reused.
BROKEN = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)
ERRORS = (
    httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Response:
    """HTTP response with its whole body. Header names are in lower case."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class Connections:
    """Pool of connections to one server, optionally through a proxy. Thread-safe."""

    def __init__(
        self, server: httpx.URL, tls: ssl.SSLContext | bool, proxy: str, headers: Mapping[str, str]
    ) -> None:
        self._server, self._prefix = server, server.raw_path.rstrip(b"/")
        self._headers = {"Host": server.netloc.decode(), "Accept-Encoding": "gzip", **headers}
        self._pool = _create_pool(tls if isinstance(tls, ssl.SSLContext) else None, proxy)

    def send(
        self, method: str, path: str, query: Mapping[str, str | int], body: bytes | None,
        headers: Mapping[str, str],
    ) -> Response:  # fmt: skip
        """Send a request and return the response.

        If the connection breaks, the request is sent again, so every request must be safe to repeat. Raises
        the exceptions in `ERRORS`.
        """
        target = self._prefix + path.encode() + (f"?{urlencode(query)}".encode() if query else b"")
        server = self._server
        url = httpcore.URL(scheme=server.raw_scheme, host=server.raw_host, port=server.port, target=target)
        length = {} if body is None else {"Content-Length": str(len(body))}
        all_headers = {**self._headers, **headers, **length}
        try:
            response = self._send_request(method, url, all_headers, body)
        except BROKEN:
            response = self._send_request(method, url, all_headers, body)
        received = {name.decode("latin-1").lower(): text.decode("latin-1") for name, text in response.headers}
        content = response.content
        if received.get("content-encoding") == "gzip":
            content = _decompress(content)
        return Response(response.status, received, content)

    def close(self) -> None:
        self._pool.close()

    def _send_request(
        self, method: str, url: httpcore.URL, headers: Mapping[str, str], body: bytes | None
    ) -> httpcore.Response:
        encoded = [(name.encode("ascii"), text.encode("ascii")) for name, text in headers.items()]
        return self._pool.request(
            method, url, headers=encoded, content=body, extensions={"timeout": TIMEOUTS}
        )


def _create_pool(tls: ssl.SSLContext | None, proxy: str) -> httpcore.ConnectionPool:
    if not proxy:
        # With a lower limit on idle connections, httpcore could close one that a thread is about to use.
        return httpcore.ConnectionPool(
            ssl_context=tls, max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
        )  # fmt: skip
    parsed = httpx.Proxy(proxy)
    url = httpcore.URL(
        scheme=parsed.url.raw_scheme, host=parsed.url.raw_host, port=parsed.url.port,
        target=parsed.url.raw_path,
    )  # fmt: skip
    return httpcore.HTTPProxy(
        url, proxy_auth=parsed.raw_auth, proxy_headers=parsed.headers.raw, ssl_context=tls,
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX,
        keepalive_expiry=IDLE_SECONDS,
    )  # fmt: skip


def _decompress(content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise httpcore.RemoteProtocolError(f"the response cannot be decompressed: {error}") from error
