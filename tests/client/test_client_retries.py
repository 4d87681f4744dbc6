"""Lost connections cost time but never a second workload."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import RateLimited, ServerFailed, Unreachable
from berth.client.retry import Loss, RetryPolicy, delay_before_next
from tests.client.desk import Desk, page, problem, workload

LOST = httpx.ReadError("connection reset by peer")
REFUSED = httpx.ConnectError("connection refused")
TAKEN = httpx.Response(201, json=workload())


def test_a_submission_that_lost_its_answer_is_sent_again_under_the_same_key() -> None:
    desk = Desk(LOST, httpx.ReadTimeout("slow"), TAKEN)
    assert desk.client().workloads.submit({"name": "train"}).name == "train"
    keys = {request.headers["Idempotency-Key"] for request in desk.requests}
    assert len(desk.requests) == 3
    assert len(keys) == 1
    assert {request.content for request in desk.requests} == {desk.requests[0].content}


def test_two_submissions_never_share_a_key() -> None:
    desk = Desk(TAKEN)
    client = desk.client()
    client.workloads.submit({"name": "train"})
    client.workloads.submit({"name": "train"})
    first, second = (request.headers["Idempotency-Key"] for request in desk.requests)
    assert first != second


def test_a_deletion_that_lost_its_answer_is_not_sent_again() -> None:
    desk = Desk(LOST, httpx.Response(204))
    with pytest.raises(Unreachable):
        desk.client().workloads.delete("x")
    assert len(desk.requests) == 1


def test_a_deletion_that_never_left_is_sent_again() -> None:
    desk = Desk(REFUSED, httpx.Response(204))
    desk.client().workloads.delete("x")
    assert len(desk.requests) == 2


def test_a_server_that_stays_away_is_given_up_on_with_its_address() -> None:
    desk = Desk(REFUSED)
    with pytest.raises(Unreachable, match=r"cannot reach http://127\.0\.0\.1:8000: connection refused"):
        desk.client().workloads.get("x")
    assert len(desk.requests) == RetryPolicy().attempts
    assert len(desk.waits) == RetryPolicy().attempts - 1


def test_the_wait_the_server_asked_for_is_kept() -> None:
    busy = httpx.Response(429, headers={"Retry-After": "7"}, json={"detail": "slow down"})
    desk = Desk(busy, page([]))
    assert list(desk.client().workloads.list()) == []
    assert desk.waits == [7.0]


def test_a_wait_that_is_too_long_is_told_instead() -> None:
    desk = Desk(httpx.Response(429, headers={"Retry-After": "3600"}, json={"detail": "slow down"}))
    with pytest.raises(RateLimited) as caught:
        desk.client().workloads.get("x")
    assert caught.value.retry_after == 3600
    assert desk.waits == []


def test_a_broken_server_is_not_asked_again() -> None:
    desk = Desk(problem(500, detail="boom"))
    with pytest.raises(ServerFailed, match="boom"):
        desk.client().workloads.get("x")
    assert len(desk.requests) == 1


@given(
    attempt=st.integers(1, 10),
    outcome=st.sampled_from([*Loss, 400, 404, 409, 429, 500, 502, 503, 504]),
    asked=st.none() | st.floats(0, 10_000),
    chance=st.floats(0, 1),
)
def test_what_may_be_done_twice_is_never_repeated(
    attempt: int, outcome: Loss | int, asked: float | None, chance: float
) -> None:
    delay = delay_before_next(
        RetryPolicy(), attempt, outcome, repeatable=False, retry_after=asked, chance=chance
    )
    if delay is not None:
        assert outcome in (Loss.NEVER_SENT, 429)
        assert attempt < RetryPolicy().attempts
        assert 0 <= delay <= RetryPolicy().max_retry_after
