"""Slow down the guessing of passwords without locking the owner of an account out.

Only failures count, in three ways:

1. An address has BERTH_RATE_LOGIN failures a minute, whatever names it tries.
2. Failures at one name count over all addresses for a quarter of an hour. Beyond ATTACKED times that limit
   the name is under attack.
3. At a name under attack each address has only ATTACKED_TRIES failures in a quarter of an hour.

No number of failures elsewhere refuses an address its first tries: the owner, who knows the password, gets
in. Guessing from many addresses is slowed by a factor of a hundred.
"""

import logging
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from django.conf import settings
from django.http import HttpRequest

from berth.core.errors import RateLimited
from berth.server.api.limits import Budget, Counter, Spent, caller, counter

log = logging.getLogger(__name__)
QUARTER = 15 * 60
ATTACKED = 5
ATTACKED_TRIES = 3
BUCKET = "login"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a password, counted as a failure until it is known to have succeeded."""

    budget: Budget
    counters: tuple[Counter, ...]

    def succeeded(self) -> None:
        for each in self.counters:
            each.take_back()


@contextmanager
def guessing(request: HttpRequest, name: str, wrong: type[Exception]) -> Iterator[Budget]:
    """Run the block as one attempt, a failure only where it raises `wrong`. Raises RateLimited before it."""
    counted = attempt(request, name)
    try:
        yield counted.budget
    except wrong:
        raise
    except BaseException:
        counted.succeeded()
        raise
    counted.succeeded()


def attempt(request: HttpRequest, name: str) -> Attempt:
    """Count an attempt before the password is checked, so that attempts at the same moment count as well.

    Raises RateLimited when the address, or the address at this name, has no failures left.
    """
    if "HTTP_X_FORWARDED_FOR" in request.META and not settings.BERTH_TRUSTED_PROXIES:
        _warn_of_unnamed_proxy()
    limit = settings.BERTH_RATE_LIMITS[BUCKET]
    name, address = _normal(name), caller(request)
    by_address = counter(BUCKET, f"failures of {address}")
    used, seconds = by_address.add()
    budget = Budget(limit, max(0, limit - used), seconds)
    if used > limit:
        raise Spent(budget)
    by_both = counter(BUCKET, f"failures of {address} at {name}", QUARTER)
    by_name = counter(BUCKET, f"failures at {name}", QUARTER)
    tries, seconds = by_both.add()
    if tries > ATTACKED_TRIES and by_name.value() >= ATTACKED * limit:
        raise RateLimited(seconds)
    by_name.add()
    return Attempt(budget, (by_address, by_both, by_name))


@cache
def _warn_of_unnamed_proxy() -> None:
    """Once per process."""
    log.warning(
        "X-Forwarded-For is ignored because BERTH_TRUSTED_PROXIES names no proxy: everybody behind one proxy "
        "counts as one address"
    )


def _normal(name: str) -> str:
    """The sign-in forms accept several spellings of one name, with spaces around it; they count as one."""
    return unicodedata.normalize("NFKC", name.strip()).strip().lower()[:150]
