"""Accrued costs of workloads, at the prices of the pools where they ran.

As in usage reports, the price at the beginning of an hour applies to the whole hour.
"""

import uuid
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from berth.db.queries import prepared
from pools.costs import current_price
from pools.models import NodePool

Rows = Sequence[tuple[Any, ...]]
MILLI_GPU_SECONDS_PER_GPU_HOUR = 3_600_000
PLACES = Decimal("0.0001")  # four decimals, as for prices
# GPU time by pool and price. The price is constant within an hour, so periods start at full hours.
GPU_TIME = """
    WITH period AS (
        SELECT pool_id, price_per_gpu_hour,
               lag(last_hour, 1, '-infinity') OVER (PARTITION BY pool_id ORDER BY until) AS begins,
               last_hour AS ends
          FROM (SELECT *, date_trunc('hour', until + interval '1 hour' - interval '1 microsecond')
                          AS last_hour FROM pools_poolprice) AS past
         UNION ALL
        SELECT pool.id, NULL, coalesce(max(date_trunc('hour',
               past.until + interval '1 hour' - interval '1 microsecond')), '-infinity'), 'infinity'
          FROM pools_nodepool AS pool LEFT JOIN pools_poolprice AS past ON past.pool_id = pool.id
         GROUP BY pool.id
    )
    SELECT {owner}, node.pool_id, period.ends = 'infinity', period.price_per_gpu_hour,
           sum(held.gpu_milli::bigint * cardinality(held.devices) * extract(epoch FROM
               least(coalesce(held.released_at, %(now)s), period.ends)
               - greatest(held.bound_at, period.begins)))
      FROM projects_pod AS pod{join}
      JOIN scheduler_allocation AS held ON held.pod_id = pod.id
      JOIN pools_node AS node ON node.id = held.node_id
      JOIN period ON period.pool_id = node.pool_id AND held.bound_at < period.ends
       AND coalesce(held.released_at, %(now)s) > greatest(held.bound_at, period.begins)
     WHERE {owner} = ANY(%(owners)s) AND held.gpu_milli > 0
     GROUP BY 1, 2, 3, 4
"""
WORKLOAD_GPU_TIME = GPU_TIME.format(owner="pod.workload_id", join="")
ARRAY_GPU_TIME = GPU_TIME.format(
    owner="task.array_id", join="\n      JOIN projects_workload AS task ON task.id = pod.workload_id"
)


def workload_costs(workloads: Collection[uuid.UUID], now: datetime) -> dict[uuid.UUID, Decimal]:
    """Return the accrued cost of each workload, to four decimals.

    Workloads without GPUs or a known price are omitted.
    """
    return _costs_by_owner(_gpu_time(WORKLOAD_GPU_TIME, workloads, now))


def array_costs(arrays: Collection[uuid.UUID], now: datetime) -> dict[uuid.UUID, Decimal]:
    """Return each array's accrued cost over all tasks, computed as in `workload_costs`."""
    return _costs_by_owner(_gpu_time(ARRAY_GPU_TIME, arrays, now))


def array_gpu_hours_and_cost(array: uuid.UUID, now: datetime) -> tuple[float, Decimal | None]:
    """Return an array's GPU-hours over all tasks, and their cost.

    The cost is None if no GPUs were used or the price is unknown.
    """
    rows = _gpu_time(ARRAY_GPU_TIME, [array], now)
    return _gpu_hours(rows), _costs_by_owner(rows).get(array)


def _gpu_time(query: str, owners: Collection[uuid.UUID], now: datetime) -> Rows:
    return prepared.fetch_all(query, {"owners": list(owners), "now": now}) if owners else []


def _costs_by_owner(rows: Rows) -> dict[uuid.UUID, Decimal]:
    if not rows:
        return {}
    prices = _current_prices({pool for _, pool, is_current, *_ in rows if is_current})
    costs: dict[uuid.UUID, Decimal] = {}
    unknown: set[uuid.UUID] = set()
    for owner, pool, is_current, past_price, gpu_time in rows:
        price = prices.get(pool) if is_current else past_price
        if price is None:
            unknown.add(owner)
        else:
            costs[owner] = costs.get(owner, Decimal(0)) + price * gpu_time
    return {
        owner: (cost / MILLI_GPU_SECONDS_PER_GPU_HOUR).quantize(PLACES)
        for owner, cost in costs.items()
        if owner not in unknown
    }


def workload_cost(workload: uuid.UUID, now: datetime) -> Decimal | None:
    """Return one workload's accrued cost, or None if the workload used no GPUs or the price is unknown."""
    return workload_costs([workload], now).get(workload)


def workload_gpu_hours(workload: uuid.UUID, now: datetime) -> float:
    """Return a workload's GPU-hours over all runs."""
    return _gpu_hours(_gpu_time(WORKLOAD_GPU_TIME, [workload], now))


def _gpu_hours(rows: Rows) -> float:
    return sum(float(gpu_time) for *_, gpu_time in rows) / MILLI_GPU_SECONDS_PER_GPU_HOUR


def _current_prices(pools: Iterable[int]) -> dict[int, Decimal | None]:
    rows = NodePool.objects.filter(pk__in=[*pools]).only(
        "provider", "provider_settings", "price_per_gpu_hour"
    )
    return {pool.pk: current_price(pool) for pool in rows}
