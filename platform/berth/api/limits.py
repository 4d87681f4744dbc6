"""Here we hold each person to so many requests a minute, and say how many are left."""

import time
from dataclasses import dataclass
from hashlib import sha256

from django.conf import settings
from django.core.cache import cache

from berth.core.errors import RateLimited

WINDOW = 60


@dataclass(frozen=True, slots=True)
class Budget:
    """What is left of one window; the seconds are until it begins anew."""

    limit: int
    remaining: int
    seconds: int

    def headers(self) -> dict[str, str]:
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.seconds),
            "RateLimit-Policy": f"{self.limit};w={WINDOW}",
        }


class Spent(RateLimited):
    """Carries the budget, so that the refusal shows the same headers as every answer."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget.seconds)
        self.budget = budget


def spend(bucket: str, who: str) -> Budget:
    """Takes one of `who`'s requests of this minute; raises Spent when there are none left.

    Counted in Django's cache: per process with the default one, across processes with Redis.
    """
    limit = settings.BERTH_RATE_LIMITS[bucket]
    window, into = divmod(time.time(), WINDOW)
    whose = sha256(who.encode()).hexdigest()[:32]  # a cache takes no key with blanks in it
    key = f"berth.rate:{bucket}:{int(window)}:{whose}"
    cache.add(key, 0, WINDOW * 2)
    used = cache.incr(key)
    budget = Budget(limit, max(0, limit - used), max(1, round(WINDOW - into)))
    if used > limit:
        raise Spent(budget)
    return budget
