"""Decide whether and when to retry a request."""

from dataclasses import dataclass
from enum import Enum

OVERLOADED = (502, 503, 504)


class RequestFailure(Enum):
    """Kind of failure that left a request without a response."""

    NEVER_SENT = "never sent"  # no connection was made, so retrying is safe
    UNANSWERED = "unanswered"  # the server may have executed the request


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Maximum number of attempts, and the delays between attempts in seconds."""

    attempts: int = 5
    first_delay: float = 0.2
    max_delay: float = 4.0
    max_retry_after: float = 60.0


def delay_before_next(
    retry_policy: RetryPolicy,
    attempt: int,
    outcome: RequestFailure | int,
    *,
    is_idempotent: bool,
    retry_after: float | None = None,
    jitter: float = 0.5,
) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up.

    Attempts are numbered from 1. `is_idempotent` means that the server runs the request only once, even if it
    arrives several times. `jitter` is a random number from 0 to 1.
    """
    if attempt >= retry_policy.attempts or not _is_worth_retrying(outcome, is_idempotent):
        return None
    if retry_after is not None:
        return retry_after if retry_after <= retry_policy.max_retry_after else None
    delay: float = min(retry_policy.first_delay * 2 ** (attempt - 1), retry_policy.max_delay)
    return delay * (0.5 + jitter)


def _is_worth_retrying(outcome: RequestFailure | int, is_idempotent: bool) -> bool:
    if outcome is RequestFailure.NEVER_SENT or outcome == 429:
        return True
    return is_idempotent and (outcome is RequestFailure.UNANSWERED or outcome in OVERLOADED)
