"""Rate limits per user and address, and limits on failed passwords.

Failed passwords are limited without locking out the owner of an account:

1. An address may fail BERTH_RATE_LOGIN times per minute, regardless of the usernames.

2. Failures for a username are counted across all addresses for 15 minutes. Beyond ATTACK_FACTOR times that
limit, the name is considered under attack.

3. For a name under attack, each address may fail only TRIES_UNDER_ATTACK times in 15 minutes.

Failures from other addresses never block the first attempts from an address, so an owner who knows the
password can sign in. Guessing from many addresses is slowed down by a factor of 100.
"""

import logging
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache as once_per_process
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest

from berth.core.errors import RateLimited

log = logging.getLogger(__name__)
WINDOW = 60
FAILURE_WINDOW = 15 * 60
ATTACK_FACTOR = 5
TRIES_UNDER_ATTACK = 3
LOGIN_BUCKET = "login"


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests remaining in a time window, and the seconds until the next window."""

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


class LimitExceeded(RateLimited):
    """Raised if a budget is exhausted. The response headers report the budget."""

    def __init__(self, budget: Budget) -> None:
        super().__init__(budget.seconds)
        self.budget = budget


def spend(bucket: str, client: str, amount: int = 1) -> Budget:
    """Count `amount` requests by `client` in the current minute. Raises LimitExceeded.

    Requests are counted in Django's cache, which is separate for each process by default. With Redis, all
    processes share one count.
    """
    limit = settings.BERTH_RATE_LIMITS[bucket]
    used, seconds = counter(bucket, client).add(min(amount, max(1, limit - 1)))
    budget = Budget(limit, max(0, limit - used), seconds)
    if used > limit:
        raise LimitExceeded(budget)
    return budget


@dataclass(frozen=True, slots=True)
class Counter:
    """Cached count for one client in one time window."""

    key: str
    seconds: int  # length of the time window
    ends_in: int

    def add(self, amount: int = 1) -> tuple[int, int]:
        """Increase the count. Return the new count, and the seconds until the window ends."""
        cache.add(self.key, 0, self.seconds * 2)
        return cache.incr(self.key, amount), self.ends_in

    def subtract(self) -> None:
        with suppress(ValueError):  # the cached count has expired
            cache.decr(self.key)

    def value(self) -> int:
        return int(cache.get(self.key, 0))


def counter(bucket: str, client: str, seconds: int = WINDOW) -> Counter:
    """Return the counter of `client` for the current window, which lasts `seconds` seconds."""
    window, elapsed = divmod(time.time(), seconds)
    digest = sha256(client.encode()).hexdigest()[:32]  # cache keys may not contain spaces
    return Counter(f"berth.rate:{bucket}:{int(window)}:{digest}", seconds, max(1, round(seconds - elapsed)))


def client_address(request: HttpRequest) -> str:
    """Return the client's IPv4 address, or the /64 network of its IPv6 address."""
    text = request.META.get("REMOTE_ADDR", "")
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ip_network((address, 64), strict=False))
    return str(address)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One password attempt, counted as a failure until `record_success` is called."""

    budget: Budget
    counters: tuple[Counter, ...]

    def record_success(self) -> None:
        for counter in self.counters:
            counter.subtract()


@contextmanager
def password_attempt(request: HttpRequest, name: str, failure: type[Exception]) -> Iterator[Budget]:
    """Count the block as one password attempt, which fails only if the block raises `failure`.

    Raises RateLimited, without running the block, if no attempts are left.
    """
    attempt = count_attempt(request, name)
    try:
        yield attempt.budget
    except failure:
        raise
    except BaseException:
        attempt.record_success()
        raise
    attempt.record_success()


def count_attempt(request: HttpRequest, name: str) -> Attempt:
    """Count an attempt before the password is checked. Raises RateLimited if none are left."""
    if "HTTP_X_FORWARDED_FOR" in request.META and not settings.BERTH_TRUSTED_PROXIES:
        _warn_about_untrusted_proxy()
    limit = settings.BERTH_RATE_LIMITS[LOGIN_BUCKET]
    name, address = _normalize_name(name), client_address(request)
    by_address = counter(LOGIN_BUCKET, f"failures of {address}")
    used, seconds = by_address.add()
    budget = Budget(limit, max(0, limit - used), seconds)
    if used > limit:
        raise LimitExceeded(budget)
    by_address_and_name = counter(LOGIN_BUCKET, f"failures of {address} at {name}", FAILURE_WINDOW)
    by_name = counter(LOGIN_BUCKET, f"failures at {name}", FAILURE_WINDOW)
    tries, seconds = by_address_and_name.add()
    if tries > TRIES_UNDER_ATTACK and by_name.value() >= ATTACK_FACTOR * limit:
        raise RateLimited(seconds)
    by_name.add()
    return Attempt(budget, (by_address, by_address_and_name, by_name))


@once_per_process
def _warn_about_untrusted_proxy() -> None:
    log.warning(
        "Ignoring X-Forwarded-For: BERTH_TRUSTED_PROXIES is empty, so all clients behind one proxy share one "
        "rate limit. List the proxy's address there"
    )


def _normalize_name(name: str) -> str:
    """Normalize the username, so that all variants that sign-in accepts share one count."""
    return unicodedata.normalize("NFKC", name.strip()).strip().lower()[:150]
