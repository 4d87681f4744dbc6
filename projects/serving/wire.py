"""One bounded HTTP call to an engine or router, pinned to a checked address."""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from projects.delivering.destination import Refused
from projects.delivering.http import readable
from projects.delivering.line import line
from projects.serving.addresses import Reach, destination
from projects.serving.base import ServingError, Trouble

MIB = 1024 * 1024
CHUNK = 65536
SHOWN = 200


@dataclass(frozen=True, slots=True)
class Answer:
    address: str
    status: int
    body: bytes

    @property
    def fine(self) -> bool:
        return 200 <= self.status < 300

    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise ServingError(Trouble.UNREADABLE, self.address, "the answer is no text") from None

    def json(self) -> dict[str, Any]:
        """An object; anything else is unreadable."""
        try:
            value = json.loads(self.text(), parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ServingError(Trouble.UNREADABLE, self.address, "the answer is no JSON") from None
        if not isinstance(value, dict):
            raise ServingError(Trouble.UNREADABLE, self.address, "the answer is no JSON object")
        return value

    def or_refused(self) -> "Answer":
        if self.fine:
            return self
        said = readable(self.body[:SHOWN])
        raise ServingError(Trouble.REFUSED, self.address, f"answered {self.status}: {said}".rstrip(": "))


@dataclass(frozen=True, slots=True)
class Wire:
    """`seconds` for a whole call unless it says otherwise; `token` is sent as a bearer's, and never shown."""

    reach: Reach = field(default_factory=Reach)
    seconds: float = 5.0
    most_bytes: int = 4 * MIB
    token: str = field(default="", repr=False)

    def get(self, base: str, path: str, *, seconds: float | None = None) -> Answer:
        return self.call("GET", base, path, seconds=seconds)

    def post(
        self,
        base: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self.call("POST", base, asked, body=body, seconds=seconds)

    def call(
        self,
        method: str,
        base: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        """Raises ServingError; an answer that says no is handed back."""
        limit = self.seconds if seconds is None else seconds
        until = time.monotonic() + limit
        try:
            return self._exchanged(method, base, path, body, limit)
        except Refused as refused:
            raise ServingError(Trouble.FORBIDDEN, base, str(refused)) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._trouble(error, base, limit, late=time.monotonic() >= until) from None

    def _exchanged(
        self, method: str, base: str, path: str, body: Mapping[str, Any] | None, limit: float
    ) -> Answer:
        to = destination(base, path, self.reach)
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "*/*"} | ({"Content-Type": "application/json"} if sent is not None else {})
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        with line(to, limit) as visit:
            visit.request(method, to.path, sent, headers)
            response = visit.getresponse()
            return Answer(base, response.status, self._whole(response, base))

    def _whole(self, response: http.client.HTTPResponse, base: str) -> bytes:
        """Torn where it ends before the length it was promised with."""
        promised, got = response.length, bytearray()
        while chunk := response.read(CHUNK):
            got += chunk
            if len(got) > self.most_bytes:
                raise ServingError(Trouble.UNREADABLE, base, f"the answer exceeds {self.most_bytes} bytes")
        if promised is not None and len(got) < promised:
            raise http.client.IncompleteRead(bytes(got), promised - len(got))
        return bytes(got)

    @staticmethod
    def _trouble(error: Exception, base: str, limit: float, *, late: bool) -> ServingError:
        if late or isinstance(error, TimeoutError):
            return ServingError(Trouble.TIMEOUT, base, f"no whole answer within {limit:g} s")
        if isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError):
            return ServingError(Trouble.UNREADABLE, base, "it hung up before it answered")
        if isinstance(error, http.client.HTTPException):
            return ServingError(Trouble.UNREADABLE, base, f"the answer is torn: {type(error).__name__}")
        said = readable(str(error).encode())[:SHOWN]
        return ServingError(Trouble.UNREACHABLE, base, f"cannot connect: {said}")


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")
