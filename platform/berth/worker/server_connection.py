"""A worker's connections to the server: one per thread, reopened after a failure."""

import base64
import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from berth.core.frames import CONTENT_TYPE, Frame, pack_frames, unpack_frames

JSON = "application/json"
TIMEOUT = 60.0
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class Rejected(Exception):
    """Raised if the worker is unknown to the server, or the server rejects a request."""


class ServerUnreachable(Exception):
    """Raised if the server did not respond in time."""


@dataclass(frozen=True, slots=True)
class Registration:
    """Response to a registration. `setup` is pickled by the client and unpickled only by workers."""

    error: str
    executor: str
    slots: int
    result_bytes_max: int
    plugins: tuple[dict[str, Any], ...]
    setup: bytes


@dataclass(frozen=True, slots=True)
class AssignedCall:
    number: int
    attempt: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Instructions:
    leave: bool
    at_once: bool
    calls: tuple[AssignedCall, ...]


class ServerConnection:
    """Connection for a worker's requests. Requests are retried while `should_continue` returns True."""

    def __init__(self, address: str, secret: str, should_continue: Callable[[], bool] = lambda: True) -> None:
        self._url = urlsplit(address)
        self._headers = {"Authorization": f"Bearer {secret}", "Accept": "*/*"}
        self._should_continue = should_continue
        self._thread_state = threading.local()

    def register(self, python: str, cloudpickle: str, *, ready: bool = False) -> Registration:
        """Register the worker. Call this method again with `ready` when the worker is set up."""
        request = {"python": python, "cloudpickle": cloudpickle, "ready": ready}
        response = json.loads(self._post("hello", request))
        response["setup"] = base64.b64decode(response["setup"])
        return Registration(**{name: response[name] for name in Registration.__slots__})

    def fetch_instructions(self, having: Collection[int], wait: float) -> Instructions:
        query = urlencode([("wait", f"{wait:g}"), *(("having", number) for number in having)])
        return _parse_instructions(self._request("GET", f"orders?{query}"))

    def send_results(self, frames: Iterable[Frame], having: Collection[int]) -> Instructions:
        """Send call outcomes. The response may contain the next calls."""
        query = urlencode([("having", number) for number in having])
        return _parse_instructions(
            self._request("POST", f"results?{query}", pack_frames(frames), CONTENT_TYPE)
        )

    def leave(self, error: str = "") -> None:
        self._post("leave", {"error": error[:20_000]})

    def _post(self, what: str, body: dict[str, Any]) -> bytes:
        return self._request("POST", what, json.dumps(body).encode())

    def _request(self, method: str, what: str, body: bytes | None = None, kind: str = JSON) -> bytes:
        delay = FIRST_DELAY
        while True:
            try:
                status, response = self._send_request(method, what, body, kind)
            except (OSError, http.client.HTTPException) as error:
                self._close_connection()
                status, response = 0, str(error).encode()
            if 200 <= status < 300:
                return response
            if status and status not in RETRY_STATUSES:
                raise Rejected(f"{what}: {status} {response[:2000].decode(errors='replace')}")
            if not self._should_continue():
                raise ServerUnreachable(response[:500].decode(errors="replace"))
            time.sleep(delay * (0.5 + random.random()))  # noqa: S311
            delay = min(delay * 2, LONGEST_DELAY)

    def _send_request(self, method: str, what: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        connection = self._connection()
        headers = {**self._headers, **({"Content-Type": kind} if body is not None else {})}
        connection.request(method, f"{self._url.path}/api/v1/workers/{what}", body, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._thread_state, "connection", None)
        if connection is None:
            secure = self._url.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            connection = self._thread_state.connection = kind(self._url.netloc, timeout=TIMEOUT)
        return connection

    def _close_connection(self) -> None:
        connection = getattr(self._thread_state, "connection", None)
        if connection is not None:
            connection.close()
            self._thread_state.connection = None


def _parse_instructions(message: bytes) -> Instructions:
    (first, _), *frames = unpack_frames(message)
    if "problem" in first:
        raise ServerUnreachable(str(first["problem"]))
    calls = tuple(AssignedCall(header["number"], header["attempt"], payload) for header, payload in frames)
    return Instructions(first["leave"], first["at_once"], calls)
