"""Hourly GPU prices from a dated table of list prices.

The table holds on-demand prices of one region. Other regions and spot cost something else: `known` answers
only for what it holds, and a pool's own `price_per_gpu_hour` goes before it.
"""

import json
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from pools.providers.aws.settings import AwsSettings


def price_per_gpu_hour(settings: AwsSettings) -> Decimal | None:
    """The dearest of the pool's types; None where one of them, the region or the way to buy is not listed."""
    table = prices()
    if settings.region != table["region"] or settings.purchase != "on_demand":
        return None
    listed = table["instances"]
    if any(name not in listed for name in settings.instance_types):
        return None
    return max(_per_gpu(*listed[name]) for name in settings.instance_types)


@cache
def prices() -> dict[str, Any]:
    text = files("pools.providers.aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _per_gpu(price: str, gpus: int) -> Decimal:
    return (Decimal(price) / gpus).quantize(Decimal("0.0001"))
