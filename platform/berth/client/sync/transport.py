# Generated from berth/client/aio/transport.py by `python -m berth.client.generate`; do not edit.
"""Send requests, and retry failed requests without executing them twice."""

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
    classify_failure,
    connection_options,
    error_from_response,
    json_content,
    query_params,
    to_json_values,
    unreachable_error,
)
from berth.client.retry import RequestFailure, RetryPolicy, delay_before_next


class Transport:
    """HTTP connection of one client. Tests can replace `sleep` and `jitter`."""

    def __init__(
        self,
        settings: Settings,
        *,
        http: httpx.BaseTransport | None = None,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self._retry_policy = retry_policy or RetryPolicy()
        self.sleep = sleep
        self._jitter = jitter
        self._http = httpx.Client(**connection_options(settings), transport=http)

    def close(self) -> None:
        self._http.close()

    def use_token(self, token: str) -> None:
        """Use the token for all further requests."""
        self.settings = replace(self.settings, token=token)
        self._http.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str, params: Params | None = None) -> Any:
        return json_content(self.execute("GET", path, params=params))

    def post(
        self,
        path: str,
        body: object = None,
        params: Params | None = None,
        key: str | None = None,
        condition: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request with an idempotency key, so that a retry has no further effect."""
        headers = {**(condition or {}), "Idempotency-Key": key or uuid.uuid4().hex}
        response = self.execute("POST", path, params=params, body=body, headers=headers, is_idempotent=True)
        return json_content(response) if response.content else None

    def execute(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        is_idempotent: bool | None = None,
    ) -> httpx.Response:
        """Send a request and return the response. Raises Rejected or Unreachable."""
        request = self._http.build_request(
            method,
            path,
            params=query_params(params),
            headers=dict(headers or {}),
            json=to_json_values(body),
            content=content,
        )
        is_retryable = method == "GET" if is_idempotent is None else is_idempotent
        for attempt in range(1, self._retry_policy.attempts + 1):
            response = self._send_once(request, attempt, is_retryable)
            if response is not None:
                return response
        raise Unreachable(f"{self.settings.address} did not respond. Try again later.")

    def iterate_items(
        self, path: str, params: Params | None = None, limit: int | None = None, page_size: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """Yield the items from all pages of a list, at most `limit` items."""
        remaining, cursor = limit, None
        while remaining is None or remaining > 0:
            size = page_size if remaining is None else min(page_size, remaining)
            page = self.get(path, {**(params or {}), "limit": size, "cursor": cursor})
            yield from page["items"]
            remaining = None if remaining is None else remaining - len(page["items"])
            cursor = page.get("next")
            if not cursor:
                return

    @contextmanager
    def stream(self, path: str, params: Params | None = None) -> Iterator[httpx.Response]:
        """Open a streaming response, without a read timeout."""
        request = self._http.build_request(
            "GET", path, params=query_params(params), timeout=httpx.Timeout(5.0, read=None)
        )
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise unreachable_error(self.settings, error) from None
        try:
            if not response.is_success:
                response.read()
                raise error_from_response(response)
            yield response
        except httpx.TransportError as error:
            raise unreachable_error(self.settings, error) from None
        finally:
            response.close()

    def _send_once(self, request: httpx.Request, attempt: int, is_idempotent: bool) -> httpx.Response | None:
        """Send a request once, and return the response or raise the error.

        If the request failed and should be retried, wait and return None instead.
        """
        outcome: RequestFailure | int
        try:
            response = self._http.send(request)
        except httpx.TransportError as error:
            failure: Exception = unreachable_error(self.settings, error)
            outcome, retry_after = classify_failure(error), None
        else:
            if response.is_success:
                return response
            rejection = error_from_response(response)
            failure, outcome, retry_after = rejection, response.status_code, rejection.retry_after
        delay = delay_before_next(
            self._retry_policy,
            attempt,
            outcome,
            is_idempotent=is_idempotent,
            retry_after=retry_after,
            jitter=self._jitter(),
        )
        if delay is None:
            raise failure from None
        self.sleep(delay)
        return None
