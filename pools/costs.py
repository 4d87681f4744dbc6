"""Here we add up what a pool's nodes cost, from when they were ordered until they ended, at today's price."""
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, FloatField, Q, Sum, Value
from django.db.models.functions import Coalesce, Extract, Greatest, Least

from pools.models import Node, NodePool
from pools.models.node import NodeState
from pools.selectors import price_per_gpu_hour

DAY, MONTH = timedelta(days=1), timedelta(days=30)
HOUR = 3600


@dataclass(frozen=True, slots=True)
class Spent:
    """`cost` None: no price is known."""

    node_hours: float
    gpu_hours: float
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Costs:
    """Amounts are in the currency of the price."""

    price_per_gpu_hour: Decimal | None
    per_hour: Decimal | None
    day: Spent
    month: Spent


def costs_of(pool: NodePool, now: datetime) -> Costs:
    """`month` is the last thirty days."""
    price = price_per_gpu_hour(pool)
    living = Node.objects.filter(pool=pool).exclude(state=NodeState.ENDED)
    gpus = living.aggregate(n=Coalesce(Sum("gpus"), 0))["n"]
    return Costs(
        price_per_gpu_hour=price,
        per_hour=None if price is None else price * gpus,
        day=_spent(pool, now - DAY, now, price),
        month=_spent(pool, now - MONTH, now, price),
    )


def hours_of_all(now: datetime) -> dict[int, tuple[float, float]]:
    """Of every pool that ever had a node: node hours and GPU hours until now."""
    ended = Least(Coalesce("ended_at", _moment(now)), _moment(now))
    lasted = ExpressionWrapper(
        Greatest(ended, F("created_at")) - F("created_at"), output_field=DurationField()
    )
    seconds = Extract(lasted, "epoch")
    rows = Node.objects.order_by().values_list("pool_id").annotate(
        nodes=Sum(seconds, output_field=FloatField()),
        of_gpus=Sum(seconds * F("gpus"), output_field=FloatField()),
    )
    return {pool_id: (nodes / HOUR, gpus / HOUR) for pool_id, nodes, gpus in rows}


def _spent(pool: NodePool, begin: datetime, now: datetime, price: Decimal | None) -> Spent:
    there = Node.objects.filter(Q(ended_at=None) | Q(ended_at__gt=begin), pool=pool, created_at__lt=now)
    lasted = ExpressionWrapper(
        Least(Coalesce("ended_at", _moment(now)), _moment(now)) - Greatest("created_at", _moment(begin)),
        output_field=DurationField(),
    )
    seconds = Extract(lasted, "epoch")
    summed = there.aggregate(
        nodes=Sum(seconds, output_field=FloatField()),
        gpus=Sum(seconds * F("gpus"), output_field=FloatField()),
    )
    gpu_hours = (summed["gpus"] or 0.0) / HOUR
    cost = None if price is None else (price * Decimal(gpu_hours)).quantize(Decimal("0.01"))
    return Spent((summed["nodes"] or 0.0) / HOUR, gpu_hours, cost)


def _moment(at: datetime) -> Value:
    return Value(at, output_field=DateTimeField())
