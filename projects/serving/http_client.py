"""HTTP calls to inference engines and routers, limited in time and size and pinned to validated addresses."""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from projects.delivering.destination import ForbiddenAddress
from projects.delivering.http import open_connection, to_printable_line
from projects.serving.addresses import AddressPolicy, resolve_destination
from projects.serving.base import ErrorKind, ServingError

MIB = 1024 * 1024
CHUNK = 65536
MAX_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class ClientResponse:
    address: str
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise ServingError(ErrorKind.UNREADABLE, self.address, "the response is not text") from None

    def json(self) -> dict[str, Any]:
        """Return the response's JSON object. Raises ServingError."""
        try:
            value = json.loads(self.text(), parse_constant=_reject_constant)
        except (ValueError, RecursionError):
            raise ServingError(ErrorKind.UNREADABLE, self.address, "the response is not JSON") from None
        if not isinstance(value, dict):
            raise ServingError(ErrorKind.UNREADABLE, self.address, "the response is not a JSON object")
        return value

    def raise_for_status(self) -> "ClientResponse":
        if self.is_success:
            return self
        raise ServingError(
            ErrorKind.REJECTED, self.address, f"responded with {self.status}: {self._reason()}"
        )

    def _reason(self) -> str:
        """Return a failed response's text, or the meaning of its status code if the text is empty or HTML."""
        message = to_printable_line(self.body[:MAX_MESSAGE])
        if message and not message.startswith("<"):
            return message
        return http.client.responses.get(self.status, "unknown status").lower()


@dataclass(frozen=True, slots=True)
class HttpClient:
    """HTTP client for the addresses that `reach` allows.

    `seconds` is the default time limit of a call. `token` is sent as a bearer token and never logged.
    """

    reach: AddressPolicy = field(default_factory=AddressPolicy)
    seconds: float = 5.0
    max_bytes: int = 4 * MIB
    token: str = field(default="", repr=False)

    def get(self, base: str, path: str, *, seconds: float | None = None) -> ClientResponse:
        return self.call("GET", base, path, seconds=seconds)

    def post(
        self,
        base: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> ClientResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        return self.call("POST", base, target, body=body, seconds=seconds)

    def call(
        self,
        method: str,
        base: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> ClientResponse:
        """Send a request, and return the response regardless of its status.

        Raises ServingError if there is no response.
        """
        limit = self.seconds if seconds is None else seconds
        deadline = time.monotonic() + limit
        try:
            return self._exchange(method, base, path, body, limit)
        except ForbiddenAddress as rejected:
            raise ServingError(ErrorKind.FORBIDDEN, base, str(rejected)) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._to_serving_error(error, base, limit, late=time.monotonic() >= deadline) from None

    def _exchange(
        self, method: str, base: str, path: str, body: Mapping[str, Any] | None, limit: float
    ) -> ClientResponse:
        to = resolve_destination(base, path, self.reach)
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "*/*"} | ({"Content-Type": "application/json"} if sent is not None else {})
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        with open_connection(to, limit) as connection:
            connection.request(method, to.path, sent, headers)
            response = connection.getresponse()
            return ClientResponse(base, response.status, self._read_all(response, base))

    def _read_all(self, response: http.client.HTTPResponse, base: str) -> bytes:
        """Return the response's body. Raises IncompleteRead if it is shorter than its Content-Length."""
        expected, received = response.length, bytearray()
        while chunk := response.read(CHUNK):
            received += chunk
            if len(received) > self.max_bytes:
                raise ServingError(ErrorKind.UNREADABLE, base, f"the response exceeds {self.max_bytes} bytes")
        if expected is not None and len(received) < expected:
            raise http.client.IncompleteRead(bytes(received), expected - len(received))
        return bytes(received)

    @staticmethod
    def _to_serving_error(error: Exception, base: str, limit: float, *, late: bool) -> ServingError:
        if late or isinstance(error, TimeoutError):
            return ServingError(ErrorKind.TIMEOUT, base, f"no complete response within {limit:g} s")
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
            return ServingError(
                ErrorKind.UNREADABLE, base, "the server closed the connection without a response"
            )
        if isinstance(error, http.client.HTTPException):
            return ServingError(
                ErrorKind.UNREADABLE, base, f"the response is truncated: {type(error).__name__}"
            )
        message = to_printable_line(str(error).encode())[:MAX_MESSAGE]
        return ServingError(ErrorKind.UNREACHABLE, base, f"cannot connect: {message}")


def _reject_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a finite number")
