# Generated from berth/client/aio/transport.py by `python -m berth.client.generate`; do not edit.
"""Send requests under asyncio, and repeat lost ones without doing them twice."""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from berth.client.config import Settings
from berth.client.errors import Unreachable
from berth.client.http import (
    PAGE,
    Params,
    carried,
    content_of,
    loss_of,
    manners,
    plain,
    refused,
    unreachable,
)
from berth.client.retry import Loss, Patience, delay_before_next


class Transport:
    """The connection of one client. `sleep` and `chance` are arguments so that tests decide them."""

    def __init__(
        self,
        settings: Settings,
        *,
        http: httpx.BaseTransport | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self._patience = patience or Patience()
        self._sleep = sleep
        self._chance = chance
        self._http = httpx.Client(**manners(settings), transport=http)

    def close(self) -> None:
        self._http.close()

    def use_token(self, token: str) -> None:
        """Send this token from now on."""
        self.settings = replace(self.settings, token=token)
        self._http.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, params: Params | None = None) -> Any:
        return content_of(self.ask("GET", path, params=params))

    def post(
        self,
        path: str,
        body: object = None,
        params: Params | None = None,
        key: str | None = None,
        condition: Mapping[str, str] | None = None,
    ) -> Any:
        """Carries a key under which the server keeps its answer, so that it is done once."""
        headers = {**(condition or {}), "Idempotency-Key": key or uuid.uuid4().hex}
        answer = self.ask("POST", path, params=params, body=body, headers=headers, repeatable=True)
        return content_of(answer) if answer.content else None

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> httpx.Response:
        """The answer to one request. Raises Refused for an answer that says no, Unreachable for none."""
        request = self._http.build_request(
            method,
            path,
            params=plain(params),
            headers=dict(headers or {}),
            json=carried(body),
            content=content,
        )
        again = method == "GET" if repeatable is None else repeatable
        for attempt in range(1, self._patience.attempts + 1):
            answer = self._once(request, attempt, again)
            if answer is not None:
                return answer
        raise Unreachable(f"{self.settings.address} did not answer")

    def etag(self, path: str) -> str:
        """Return the ETag of an object, for a conditional request."""
        answer = self.ask("GET", path)
        return str(answer.headers.get("ETag", "*"))

    def pages(
        self, path: str, params: Params | None = None, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, page after page; at most `limit` of them."""
        left, cursor = limit, None
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.get(path, {**(params or {}), "limit": size, "cursor": cursor})
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next")
            if not cursor:
                return

    @contextmanager
    def stream(self, path: str, params: Params | None = None) -> Iterator[httpx.Response]:
        """An answer that is read while it is still being written; it may pause for as long as it likes."""
        request = self._http.build_request(
            "GET", path, params=plain(params), timeout=httpx.Timeout(5.0, read=None)
        )
        try:
            answer = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise unreachable(self.settings, error) from None
        try:
            if not answer.is_success:
                answer.read()
                raise refused(answer)
            yield answer
        except httpx.TransportError as error:
            raise unreachable(self.settings, error) from None
        finally:
            answer.close()

    def _once(self, request: httpx.Request, attempt: int, repeatable: bool) -> httpx.Response | None:
        """One attempt; None after waiting means: try again."""
        outcome: Loss | int
        try:
            answer = self._http.send(request)
        except httpx.TransportError as error:
            failure: Exception = unreachable(self.settings, error)
            outcome, asked = loss_of(error), None
        else:
            if answer.is_success:
                return answer
            said_no = refused(answer)
            failure, outcome, asked = said_no, answer.status_code, said_no.retry_after
        delay = delay_before_next(
            self._patience, attempt, outcome, repeatable=repeatable, retry_after=asked, chance=self._chance()
        )
        if delay is None:
            raise failure from None
        self._sleep(delay)
        return None
