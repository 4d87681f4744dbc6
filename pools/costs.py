"""A pool's GPU price over time, and the cost of its nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, FloatField, Q, Sum, Value
from django.db.models.functions import Coalesce, Extract, Greatest, Least

from pools.models import Node, NodePool, PoolPrice
from pools.models.node import NodeState
from pools.providers.aws import prices
from pools.providers.aws.settings import aws_settings

DAY, MONTH = timedelta(days=1), timedelta(days=30)
HOUR = 3600
HOURS_PER_MONTH = 24 * MONTH.days


@dataclass(frozen=True, slots=True)
class Spending:
    """Node-hours, GPU-hours and cost over a period. `cost` is None if no price is known."""

    node_hours: float
    gpu_hours: float
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a pool, in the currency of its GPU price."""

    price_per_gpu_hour: Decimal | None
    per_hour: Decimal | None
    day: Spending
    month: Spending


def pool_costs(pool: NodePool, now: datetime) -> Costs:
    """Return the pool's current hourly cost, and its costs in the last 24 hours and the last 30 days."""
    price = current_price(pool)
    living = Node.objects.filter(pool=pool, queued=False).exclude(state=NodeState.ENDED)
    gpus = living.aggregate(n=Coalesce(Sum("gpus"), 0))["n"]
    return Costs(
        price_per_gpu_hour=price,
        per_hour=None if price is None else price * gpus,
        day=_sum_spending(pool, now - DAY, now),
        month=_sum_spending(pool, now - MONTH, now),
    )


def hours_by_pool(now: datetime) -> dict[int, tuple[float, float]]:
    """Return the total node-hours and GPU-hours of each pool. Pools that never had a node are omitted."""
    ended = Least(Coalesce("ended_at", _datetime_value(now)), _datetime_value(now))
    duration = ExpressionWrapper(
        Greatest(ended, F("created_at")) - F("created_at"), output_field=DurationField()
    )
    seconds = Extract(duration, "epoch")
    rows = (
        Node.objects.filter(queued=False)
        .order_by()
        .values_list("pool_id")
        .annotate(
            nodes=Sum(seconds, output_field=FloatField()),
            of_gpus=Sum(seconds * F("gpus"), output_field=FloatField()),
        )
    )
    return {pool_id: (nodes / HOUR, gpus / HOUR) for pool_id, nodes, gpus in rows}


def _sum_spending(pool: NodePool, begin: datetime, now: datetime) -> Spending:
    node_hours, gpu_hours, cost = 0.0, 0.0, Decimal(0)
    has_price, lacks_price = False, False
    for period in price_periods(pool, begin, now):
        nodes, gpus = _node_and_gpu_hours(pool, period.begin, period.end)
        node_hours, gpu_hours = node_hours + nodes, gpu_hours + gpus
        has_price |= period.price is not None
        lacks_price |= period.price is None and gpus > 0
        cost += (period.price or Decimal(0)) * Decimal(gpus)
    total = cost.quantize(Decimal("0.01")) if has_price and not lacks_price else None
    return Spending(node_hours, gpu_hours, total)


def _node_and_gpu_hours(pool: NodePool, begin: datetime, end: datetime) -> tuple[float, float]:
    living = Node.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), created_at__lt=end)
    # nodes in the provider's queue cost nothing
    nodes = living.filter(pool=pool, queued=False)
    duration = ExpressionWrapper(
        Least(Coalesce("ended_at", _datetime_value(end)), _datetime_value(end))
        - Greatest("created_at", _datetime_value(begin)),
        output_field=DurationField(),
    )
    seconds = Extract(duration, "epoch")
    sums = nodes.aggregate(
        nodes=Sum(seconds, output_field=FloatField()),
        gpus=Sum(seconds * F("gpus"), output_field=FloatField()),
    )
    return (sums["nodes"] or 0.0) / HOUR, (sums["gpus"] or 0.0) / HOUR


def _datetime_value(at: datetime) -> Value:
    return Value(at, output_field=DateTimeField())


@dataclass(frozen=True, slots=True)
class PricePeriod:
    """Period with a constant GPU price. `price` is None if the price was unknown."""

    begin: datetime
    end: datetime
    price: Decimal | None


def current_price(pool: NodePool) -> Decimal | None:
    """Return the pool's price per GPU-hour, by default the list price, or None if it is unknown."""
    if pool.price_per_gpu_hour is not None or pool.provider != NodePool.Provider.AWS:
        return pool.price_per_gpu_hour
    return prices.price_per_gpu_hour(aws_settings(pool.provider_settings))


def store_past_price(pool: NodePool, price: Decimal | None, *, until: datetime) -> None:
    """Record the pool's price up to `until`. Must be called in the transaction that changes the price."""
    PoolPrice.objects.update_or_create(pool=pool, until=until, defaults={"price_per_gpu_hour": price})


def price_periods(pool: NodePool, begin: datetime, end: datetime) -> Iterator[PricePeriod]:
    """Yield the periods between `begin` and `end` with their prices, in order."""
    past = PoolPrice.objects.filter(pool=pool, until__gt=begin).order_by("until")
    for until, price in past.values_list("until", "price_per_gpu_hour"):
        if begin < min(until, end):
            yield PricePeriod(begin, min(until, end), price)
            begin = min(until, end)
    if begin < end:
        yield PricePeriod(begin, end, current_price(pool))
