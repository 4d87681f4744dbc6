"""Hourly GPU prices of EC2 instances, from a dated list of one region's on-demand prices.

A pool's own `price_per_gpu_hour` takes precedence.
"""

import json
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from pools.providers.aws.settings import AwsSettings


def price_per_gpu_hour(settings: AwsSettings) -> Decimal | None:
    """Return the highest hourly price per GPU among the pool's instance types.

    Return None if the pool may use spot instances, or the list lacks a type or the region.
    """
    table = load_prices()
    if settings.region != table["region"] or settings.purchase != "on_demand":
        return None
    listed = table["instances"]
    if any(name not in listed for name in settings.instance_types):
        return None
    return max(_price_per_gpu(*listed[name]) for name in settings.instance_types)


@cache
def load_prices() -> dict[str, Any]:
    text = files("pools.providers.aws").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _price_per_gpu(price: str, gpus: int) -> Decimal:
    return (Decimal(price) / gpus).quantize(Decimal("0.0001"))
