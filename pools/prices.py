"""The price of a pool's GPU at a given time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from pools.models import NodePool, PoolPrice
from pools.providers.aws import prices
from pools.providers.aws.settings import aws_settings


@dataclass(frozen=True, slots=True)
class Stretch:
    """Of time with one price; None where none was known."""

    begin: datetime
    end: datetime
    price: Decimal | None


def price_per_gpu_hour(pool: NodePool) -> Decimal | None:
    """What people said, or the list price, where one is known."""
    if pool.price_per_gpu_hour is not None or pool.provider != NodePool.Provider.AWS:
        return pool.price_per_gpu_hour
    return prices.price_per_gpu_hour(aws_settings(pool.provider_settings))


def keep(pool: NodePool, price: Decimal | None, *, until: datetime) -> None:
    """It cost so much until now. In the caller's transaction, who changes the pool's price."""
    PoolPrice.objects.update_or_create(pool=pool, until=until, defaults={"price_per_gpu_hour": price})


def stretches(pool: NodePool, begin: datetime, end: datetime) -> Iterator[Stretch]:
    """The last one at today's price."""
    past = PoolPrice.objects.filter(pool=pool, until__gt=begin).order_by("until")
    for until, price in past.values_list("until", "price_per_gpu_hour"):
        if begin < min(until, end):
            yield Stretch(begin, min(until, end), price)
            begin = min(until, end)
    if begin < end:
        yield Stretch(begin, end, price_per_gpu_hour(pool))
