"""HTTP client for a Kubernetes API server.

Objects are plain dictionaries. The client is thread-safe, and every call has a timeout.
"""

import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.kubernetes.api_server.calls import (
    CONNECT_SECONDS,
    CONNECTIONS_MAX,
    ERRORS,
    SECONDS,
    Connections,
    Response,
)
from pools.kubernetes.api_server.credentials import PATH, Connection
from pools.kubernetes.api_server.rate_limit import RateLimit

PAGE = 500  # maximum number of objects per page of a list response
TEXT_MAX = 500
# Smaller clock differences are ignored: the Date header has whole seconds, and responses take time.
SKEW_MIN = timedelta(seconds=5)
CONNECTED = "CONNECTED"
Object = Mapping[str, Any]


class ApiError(Exception):
    """Error response of the API server. `reason` is its machine-readable reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


class Unreachable(Exception):
    """Raised if the API server does not respond."""


class AccessDenied(Unreachable):
    """Raised if the API server rejects the credentials, or if they lack a required permission."""


@dataclass(frozen=True, slots=True)
class SocketTarget:
    """URL of a WebSocket on the API server, with its credentials, TLS context and proxy."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    tls: ssl.SSLContext | None
    proxy: str | None


class Api:
    """API client of one cluster.

    The constructor raises Invalid if the kubeconfig cannot be used. All calls share one rate limit. After
    `close`, new calls raise Unreachable, but running calls finish.
    """

    def __init__(self, connection: Connection) -> None:
        self.server = connection.server
        self._connection = connection
        self._rejection = _rejection_message(connection)
        # The server's time minus this machine's time, measured during the last call.
        self.clock_offset = timedelta(0)
        self._lock, self._running, self._is_closed = threading.Lock(), 0, False
        self._pace = RateLimit()
        headers = {"User-Agent": "berth", "Accept": "application/json"}
        with _errors_as_invalid("clusters.server", "https://HOST:PORT"):
            base_url = httpx.URL(connection.server)
        with _errors_as_invalid("users.token", "ASCII characters"):
            if connection.token:
                headers["Authorization"] = f"Bearer {connection.token.encode('ascii').decode()}"
        tls = self._tls = _tls_context(connection)
        with _errors_as_invalid("clusters.proxy-url", "http://HOST:PORT or https://HOST:PORT"):
            self._calls = Connections(base_url, tls, connection.proxy, headers)
            # This client is used only for streams.
            self._http = httpx.Client(
                base_url=base_url, headers=headers, trust_env=False, verify=tls,
                proxy=connection.proxy or None, limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            )  # fmt: skip

    @property
    def clock_skew(self) -> timedelta:
        """API server's time minus this machine's time, or zero if the difference is small."""
        return self.clock_offset if abs(self.clock_offset) >= SKEW_MIN else timedelta(0)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            is_idle = self._running == 0
        if is_idle:
            self._close_connections()

    def _close_connections(self) -> None:
        self._calls.close()
        self._http.close()

    @contextmanager
    def _guard_call(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise Unreachable(f"the client for {self.server} has been closed")
            self._running += 1
        try:
            self._pace.wait()
            with _translate_transport_errors(self.server):
                yield
        finally:
            with self._lock:
                self._running -= 1
                is_last = self._is_closed and self._running == 0
            if is_last:
                self._close_connections()

    def _token_header(self) -> dict[str, str]:
        """Return the Authorization header if the token is in a file, otherwise an empty dictionary.

        The file is read for each call, because Kubernetes replaces the token from time to time.
        """
        file = self._connection.token_file
        return {"Authorization": f"Bearer {file.read_text().strip()}"} if file else {}

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        return self._call("GET", path, query)

    def create(self, path: str, body: Object) -> dict[str, Any]:
        return self._call("POST", path, {}, body)

    def delete(self, path: str, grace_seconds: int | None = None) -> None:
        """Delete an object if it exists."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds  # type: ignore[assignment]
        try:
            self._call("DELETE", path, {}, body)
        except ApiError as error:
            if error.status != 404:
                raise

    def read(self, path: str, **query: str | int) -> bytes:
        """Return the body of a response that is not JSON, such as a log."""
        with self._guard_call():
            response = self._calls.send("GET", path, query, None, self._token_header())
        self._raise_for_status(response)
        return response.content

    def stream(self, path: str, silence_seconds: float, **query: str | int) -> Iterator[bytes]:
        """Yield the chunks of a long response, such as a running pod's log.

        Raises Unreachable if no data arrives for `silence_seconds`.
        """
        with self._stream(path, silence_seconds, query) as response:
            yield from response.iter_bytes()

    def socket_target(self, path: str) -> SocketTarget:
        """Return the WebSocket target for the API path. Raises Unreachable if the token cannot be read."""
        token, file = self._connection.token, self._connection.token_file
        with _translate_transport_errors(self.server):
            token = file.read_text().strip() if file else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = "ws" + self.server.rstrip("/").removeprefix("http") + path
        tls = self._tls if isinstance(self._tls, ssl.SSLContext) else None
        return SocketTarget(url, headers, tls, self._connection.proxy or None)

    def list(self, path: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a collection, and the resource version to watch it from."""
        items: list[dict[str, Any]] = []
        version = ""
        for page, page_version in self.pages(path):
            items += page
            version = page_version
        return items, version

    def pages(self, path: str) -> Iterator[tuple[Sequence[dict[str, Any]], str]]:
        """Yield a collection's objects page by page, each with the resource version to watch from."""
        query: dict[str, str | int] = {"limit": PAGE}
        while True:
            page = self.get(path, **query)
            metadata = page["metadata"]
            yield page.get("items") or (), metadata["resourceVersion"]
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    def watch(self, path: str, version: str, seconds: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (CONNECTED, {}), then the type and object of each change after the resource version
        `version`.

        The watch ends after about `seconds`. Raises ApiError with status 410 if the version is too old.
        """
        query: dict[str, str | int] = {
            "watch": 1, "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": seconds,
        }  # fmt: skip
        with self._stream(path, seconds + 15.0, query) as response:
            yield CONNECTED, {}
            for line in response.iter_lines():
                if not line:
                    continue
                event = json.loads(line)
                kind, item = event["type"], event["object"]
                if kind == "ERROR":
                    raise _api_error(int(item.get("code") or 500), item)
                yield kind, item

    @contextmanager
    def _stream(
        self, path: str, silence_seconds: float, query: Mapping[str, str | int]
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS, read=silence_seconds)
        with self._guard_call():
            headers = self._token_header()
            with self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    self._raise_for_status(response)
                yield response

    def _call(
        self, method: str, path: str, query: Mapping[str, str | int], body: Object | None = None
    ) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        with self._guard_call():
            response = self._calls.send(method, path, query, content, headers | self._token_header())
        self.clock_offset = _clock_offset(response)
        self._raise_for_status(response)
        try:
            parsed = json.loads(response.content)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ApiError(
                502,
                "NotKubernetes",
                f"{self.server} did not respond like a Kubernetes API server. Check its address",
            )
        return parsed

    def _raise_for_status(self, response: httpx.Response | Response) -> None:
        """Raise ApiError unless the response is a success. The response body must already have been read."""
        if 200 <= response.status_code < 300:
            return
        if response.status_code == 429:
            self._pace.pause(_retry_after(response))
        if response.status_code == 401:
            raise ApiError(401, "Unauthorized", self._rejection)
        try:
            parsed = json.loads(response.content)
        except ValueError:
            parsed = None
        raise _api_error(response.status_code, parsed if isinstance(parsed, dict) else {})


def _rejection_message(connection: Connection) -> str:
    if connection.token_file:
        return (
            f"the API server rejects the service account's token in {connection.token_file}. Check that the "
            "service account exists"
        )
    credential = "token" if connection.token else "client certificate"
    return (
        f"the API server rejects the {credential} in the pool's kubeconfig, which is invalid or has expired. "
        f"Set a kubeconfig with a valid {credential}"
    )


def _retry_after(response: httpx.Response | Response) -> float:
    """Return how many seconds to wait before the next request to an overloaded server. The default is one."""
    text = response.headers.get("retry-after") or ""
    return float(text) if text.isdecimal() else 1.0


def _clock_offset(response: Response) -> timedelta:
    try:
        return parsedate_to_datetime(response.headers["date"]) - datetime.now(UTC)
    except (KeyError, ValueError, TypeError):
        return timedelta(0)


@contextmanager
def _translate_transport_errors(server: str) -> Iterator[None]:
    try:
        yield
    except (*ERRORS, httpx.TransportError, httpx.InvalidURL) as error:
        raise Unreachable(f"{server} cannot be reached: {error or type(error).__name__}") from error
    except OSError as error:  # the token file cannot be read
        raise Unreachable(f"the credentials for {server} cannot be read: {error}") from error


def _api_error(status: int, body: Object) -> ApiError:
    text = str(body.get("message") or f"status {status}")[:TEXT_MAX]
    message = "".join(char if char.isprintable() else " " for char in text)
    return ApiError(status, str(body.get("reason") or ""), message)


@contextmanager
def _errors_as_invalid(part: str, allowed: str) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError, ImportError, httpx.InvalidURL) as error:
        raise Invalid([Problem(f"{PATH}.{part}", "cannot be used", "", allowed)]) from error


def _tls_context(connection: Connection) -> ssl.SSLContext | bool:
    if not connection.server.startswith("https:"):
        return False
    with _errors_as_invalid("clusters.certificate-authority-data", "a certificate in PEM format, in base64"):
        context = ssl.create_default_context(cadata=connection.ca or None)
    if connection.skip_verification:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if connection.client_certificate:
        # Python's TLS module only reads certificates from files.
        with tempfile.TemporaryDirectory(prefix="berth-kubernetes-") as directory:
            paths = [Path(directory) / name for name in ("client.crt", "client.key")]
            for path, content in zip(paths, connection.client_certificate, strict=True):
                path.touch(mode=0o600)
                path.write_text(content)
            # Without a password, OpenSSL would prompt for one on the terminal if the key is encrypted.
            with _errors_as_invalid(
                "users.client-certificate-data", "a certificate and its key without a password"
            ):
                context.load_cert_chain(str(paths[0]), str(paths[1]), password="")
    return context
