"""Limit the requests of a person or an address per minute, and say how many are left."""

import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest

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
    """Take one of the requests that `who` has in this minute. Raises Spent when none are left.

    Counted in Django's cache: per process with the default one, across processes with Redis.
    """
    limit = settings.BERTH_RATE_LIMITS[bucket]
    used, seconds = counter(bucket, who).add()
    budget = Budget(limit, max(0, limit - used), seconds)
    if used > limit:
        raise Spent(budget)
    return budget


@dataclass(frozen=True, slots=True)
class Counter:
    """One count in one window of time; it starts from 0 in the next window."""

    key: str
    seconds: int  # of the window
    ends_in: int

    def add(self) -> tuple[int, int]:
        """The count with this one, and the seconds until the window ends."""
        cache.add(self.key, 0, self.seconds * 2)
        return cache.incr(self.key), self.ends_in

    def take_back(self) -> None:
        with suppress(ValueError):  # the count has expired
            cache.decr(self.key)

    def value(self) -> int:
        return int(cache.get(self.key, 0))


def counter(bucket: str, who: str, seconds: int = WINDOW) -> Counter:
    """The count of `who` in the present window of that many seconds."""
    window, into = divmod(time.time(), seconds)
    whose = sha256(who.encode()).hexdigest()[:32]  # a cache takes no key with blanks in it
    return Counter(f"berth.rate:{bucket}:{int(window)}:{whose}", seconds, max(1, round(seconds - into)))


def caller(request: HttpRequest) -> str:
    """What counts as one caller: an IPv4 address, or the /64 network of an IPv6 address, whose owner could
    otherwise come from a new address each time."""
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
