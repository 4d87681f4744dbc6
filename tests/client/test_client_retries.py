"""Tests for retries after lost connections and rate limits."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import RateLimited, ServerFailed, Unreachable
from berth.client.retry import RequestFailure, RetryPolicy, delay_before_next
from tests.client.stub_server import StubServer, page, problem, workload

LOST = httpx.ReadError("connection reset by peer")
REJECTED = httpx.ConnectError("connection refused")
CREATED = httpx.Response(201, json=workload())


def test_submission_with_a_lost_response_is_retried_with_the_same_idempotency_key() -> None:
    server = StubServer(LOST, httpx.ReadTimeout("slow"), CREATED)
    assert server.client().workloads.submit({"name": "train"}).name == "train"
    keys = {request.headers["Idempotency-Key"] for request in server.requests}
    assert len(server.requests) == 3
    assert len(keys) == 1
    assert {request.content for request in server.requests} == {server.requests[0].content}


def test_each_submission_has_its_own_idempotency_key() -> None:
    server = StubServer(CREATED)
    client = server.client()
    client.workloads.submit({"name": "train"})
    client.workloads.submit({"name": "train"})
    first, second = (request.headers["Idempotency-Key"] for request in server.requests)
    assert first != second


def test_deletion_with_a_lost_response_is_not_retried() -> None:
    server = StubServer(LOST, httpx.Response(204))
    with pytest.raises(Unreachable):
        server.client().workloads.delete("x")
    assert len(server.requests) == 1


def test_unsent_deletion_is_retried() -> None:
    server = StubServer(REJECTED, httpx.Response(204))
    server.client().workloads.delete("x")
    assert len(server.requests) == 2


def test_unreachable_server_raises_an_error_after_all_attempts() -> None:
    server = StubServer(REJECTED)
    with pytest.raises(Unreachable, match=r"cannot reach http://127\.0\.0\.1:8000: connection refused"):
        server.client().workloads.get("x")
    assert len(server.requests) == RetryPolicy().attempts
    assert len(server.waits) == RetryPolicy().attempts - 1


def test_retry_after_header_is_respected() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "7"}, json={"detail": "slow down"})
    server = StubServer(busy, page([]))
    assert list(server.client().workloads.list()) == []
    assert server.waits == [7.0]


def test_long_retry_after_raises_rate_limited() -> None:
    server = StubServer(httpx.Response(429, headers={"Retry-After": "3600"}, json={"detail": "slow down"}))
    with pytest.raises(RateLimited) as caught:
        server.client().workloads.get("x")
    assert caught.value.retry_after == 3600
    assert server.waits == []


def test_server_error_is_not_retried() -> None:
    server = StubServer(problem(500, detail="boom"))
    with pytest.raises(ServerFailed, match="boom"):
        server.client().workloads.get("x")
    assert len(server.requests) == 1


@given(
    attempt=st.integers(1, 10),
    outcome=st.sampled_from([*RequestFailure, 400, 404, 409, 429, 500, 502, 503, 504]),
    retry_after=st.none() | st.floats(0, 10_000),
    jitter=st.floats(0, 1),
)
def test_non_idempotent_request_is_retried_only_if_it_was_not_processed(
    attempt: int, outcome: RequestFailure | int, retry_after: float | None, jitter: float
) -> None:
    delay = delay_before_next(
        RetryPolicy(), attempt, outcome, is_idempotent=False, retry_after=retry_after, jitter=jitter
    )
    if delay is not None:
        assert outcome in (RequestFailure.NEVER_SENT, 429)
        assert attempt < RetryPolicy().attempts
        assert 0 <= delay <= RetryPolicy().max_retry_after
