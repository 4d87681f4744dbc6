"""Tests for node costs."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from pools import services
from pools.costs import pool_costs, store_past_price
from pools.models import NodePool, PoolPrice
from tests import factories as make
from tests.pools.stage import SYSTEM

NOW = timezone.now()


def ago(hours: float) -> Any:
    return NOW - timedelta(hours=hours)


@pytest.fixture
def priced_pool(db: None) -> NodePool:
    """Create two 4-GPU nodes. One has run for two hours. The other ran for half an hour about a day ago."""
    pool = make.pool("big", gpus=4, price_per_gpu_hour=Decimal("2.5"))
    make.node(pool, 0, created_at=ago(2))
    make.node(pool, 1, state="ended", created_at=ago(24.25), ended_at=ago(23.75))
    return pool


def test_node_is_charged_from_its_launch_request_until_it_ends(priced_pool: NodePool) -> None:
    costs = pool_costs(priced_pool, NOW)
    assert costs.per_hour == Decimal(10)
    assert (round(costs.day.node_hours, 6), round(costs.day.gpu_hours, 6)) == (2.25, 9.0)
    assert (round(costs.month.node_hours, 6), costs.month.cost) == (2.5, Decimal("25.00"))


def test_unpriced_pool_reports_hours_without_cost(priced_pool: NodePool) -> None:
    priced_pool.price_per_gpu_hour = None
    costs = pool_costs(priced_pool, NOW)
    assert (costs.per_hour, costs.day.cost, round(costs.day.gpu_hours, 6)) == (None, None, 9.0)


def test_pool_without_nodes_costs_nothing(db: None) -> None:
    costs = pool_costs(make.pool("empty", price_per_gpu_hour=Decimal(1)), NOW)
    assert (costs.per_hour, costs.month.cost, costs.month.node_hours) == (Decimal(0), Decimal("0.00"), 0.0)


def test_past_hours_keep_their_price(priced_pool: NodePool) -> None:
    # Four GPUs run for two hours, the first hour at a price of 2.5, the second at 5.
    services.edit_pool(actor=SYSTEM, pool=priced_pool, changes={"price_per_gpu_hour": Decimal(5)})
    services.edit_pool(actor=SYSTEM, pool=priced_pool, changes={"gpu_model": "H100"})
    (price,) = PoolPrice.objects.all()
    assert price.price_per_gpu_hour == Decimal("2.5")
    PoolPrice.objects.update(until=ago(1))
    priced_pool.refresh_from_db()
    costs = pool_costs(priced_pool, NOW)
    assert (costs.per_hour, costs.price_per_gpu_hour) == (Decimal(20), Decimal(5))
    assert costs.day.cost == Decimal("32.50")  # 4 x 2.5, 4 x 5, and one GPU-hour a day ago
    assert costs.month.cost == Decimal("35.00")


def test_cost_is_unknown_only_if_an_unpriced_period_has_usage(priced_pool: NodePool) -> None:
    store_past_price(priced_pool, None, until=ago(40))
    assert pool_costs(priced_pool, NOW).month.cost == Decimal("25.00")
    store_past_price(priced_pool, None, until=ago(24))
    assert pool_costs(priced_pool, NOW).month.cost is None
    assert pool_costs(priced_pool, NOW).day.cost == Decimal("22.50")
