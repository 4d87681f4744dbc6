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
    connection_options,
    content_of,
    loss_of,
    plain,
    refused,
    unreachable,
)
from berth.client.retry import Loss, RetryPolicy, delay_before_next


class Transport:
    """The connection of one client. `sleep` and `chance` are arguments so that tests control them."""

    def __init__(
        self,
        settings: Settings,
        *,
        http: httpx.BaseTransport | None = None,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self._retry_policy = retry_policy or RetryPolicy()
        self._sleep = sleep
        self._chance = chance
        self._http = httpx.Client(**connection_options(settings), transport=http)

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
        """Send a request with an idempotency key, so that a repetition has no further effect."""
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
        """Return the answer. Raises Refused for an error status and Unreachable if there is none."""
        request = self._http.build_request(
            method,
            path,
            params=plain(params),
            headers=dict(headers or {}),
            json=carried(body),
            content=content,
        )
        again = method == "GET" if repeatable is None else repeatable
        for attempt in range(1, self._retry_policy.attempts + 1):
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
        """Yield the items of all pages of a list, at most `limit`."""
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
        """Open an answer that is read while the server writes it, without a read timeout."""
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
        """Send a request once. Return None, after the delay, if it is to be repeated."""
        outcome: Loss | int
        try:
            answer = self._http.send(request)
        except httpx.TransportError as error:
            failure: Exception = unreachable(self.settings, error)
            outcome, retry_after = loss_of(error), None
        else:
            if answer.is_success:
                return answer
            refusal = refused(answer)
            failure, outcome, retry_after = refusal, answer.status_code, refusal.retry_after
        delay = delay_before_next(
            self._retry_policy,
            attempt,
            outcome,
            repeatable=repeatable,
            retry_after=retry_after,
            chance=self._chance(),
        )
        if delay is None:
            raise failure from None
        self._sleep(delay)
        return None
