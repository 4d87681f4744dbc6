"""Decide whether and when a request is repeated."""

from dataclasses import dataclass
from enum import Enum

OVERLOADED = (502, 503, 504)


class Loss(Enum):
    """How a request came to have no answer."""

    NEVER_SENT = "never sent"  # nobody took the connection: sending again can do no harm
    UNANSWERED = "unanswered"  # it may have been carried out


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try; seconds."""

    attempts: int = 5
    first_delay: float = 0.2
    longest_delay: float = 4.0
    longest_wait_asked: float = 60.0


def delay_before_next(
    patience: Patience,
    attempt: int,
    outcome: Loss | int,
    *,
    repeatable: bool,
    retry_after: float | None = None,
    chance: float = 0.5,
) -> float | None:
    """Seconds to wait before attempt + 1 (attempts count from 1); None: take the outcome as it is.

    `repeatable` says that the server does a request once however often it arrives. `chance` (0 to 1)
    spreads clients that were refused together.
    """
    if attempt >= patience.attempts or not _worth_repeating(outcome, repeatable):
        return None
    if retry_after is not None:
        return retry_after if retry_after <= patience.longest_wait_asked else None
    delay: float = min(patience.first_delay * 2 ** (attempt - 1), patience.longest_delay)
    return delay * (0.5 + chance)


def _worth_repeating(outcome: Loss | int, repeatable: bool) -> bool:
    if outcome is Loss.NEVER_SENT or outcome == 429:
        return True
    return repeatable and (outcome is Loss.UNANSWERED or outcome in OVERLOADED)
