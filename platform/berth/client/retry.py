"""Decide whether and when a request is repeated."""

from dataclasses import dataclass
from enum import Enum

OVERLOADED = (502, 503, 504)


class Loss(Enum):
    """Reason why a request has no answer."""

    NEVER_SENT = "never sent"  # no connection was made, so repeating is safe
    UNANSWERED = "unanswered"  # the server may have executed it


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of attempts and delays in seconds."""

    attempts: int = 5
    first_delay: float = 0.2
    longest_delay: float = 4.0
    max_retry_after: float = 60.0


def delay_before_next(
    retry_policy: RetryPolicy,
    attempt: int,
    outcome: Loss | int,
    *,
    repeatable: bool,
    retry_after: float | None = None,
    chance: float = 0.5,
) -> float | None:
    """Return the seconds to wait before the next attempt, None if there is none. Attempts count from 1.

    `repeatable`: the server executes the request once, however often it arrives. `chance` (0 to 1) spreads
    the retries of clients that were refused together.
    """
    if attempt >= retry_policy.attempts or not _worth_repeating(outcome, repeatable):
        return None
    if retry_after is not None:
        return retry_after if retry_after <= retry_policy.max_retry_after else None
    delay: float = min(retry_policy.first_delay * 2 ** (attempt - 1), retry_policy.longest_delay)
    return delay * (0.5 + chance)


def _worth_repeating(outcome: Loss | int, repeatable: bool) -> bool:
    if outcome is Loss.NEVER_SENT or outcome == 429:
        return True
    return repeatable and (outcome is Loss.UNANSWERED or outcome in OVERLOADED)
