"""Usage reports by department, project, user and pool, in steps from one hour to one month.

Active allocations are counted up to now.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection

from pools.costs import current_price
from pools.models import NodePool, PoolPrice
from projects.access import fully_visible_departments, is_platform_admin, visible_projects
from projects.actor import Actor

HOUR = 3600
MILLI = 1000
MIB = 1024
CENT = Decimal("0.01")


class UsageDimension(StrEnum):
    DEPARTMENT = "department"
    PROJECT = "project"
    USER = "user"
    POOL = "pool"


class ReportStep(StrEnum):
    """Length of a report period.

    Days, weeks (from Monday) and months begin at midnight in the report's time zone.
    """

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """Parameters of a usage report.

    `since` is rounded down to the hour. Without a step, the report covers a single period.
    """

    since: datetime
    until: datetime
    group_by: tuple[UsageDimension, ...] = (UsageDimension.DEPARTMENT, UsageDimension.PROJECT)
    step: ReportStep | None = None
    time_zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    only: Mapping[UsageDimension, str] = field(default_factory=dict)  # names that must match exactly
    # Allowed names by dimension. A row must match in at least one dimension.
    any_of: Mapping[UsageDimension, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage in the period that begins at `at`.

    If the price is unknown for any part of the usage, `cost` is None, and `known_cost` is the cost of the
    other parts.
    """

    at: datetime | None
    names: Mapping[UsageDimension, str]
    gpu_hours: float
    cpu_hours: float
    memory_gib_hours: float
    cost: Decimal | None
    known_cost: Decimal = Decimal(0)
    unpriced: frozenset[str] = frozenset()


USAGE = """
    SELECT hour, pool_id, pool_name, department_id, department_name, project_id, project_name, user_name,
           gpu_milli_seconds AS gpu, cpu_milli_seconds AS cpu, memory_mib_seconds AS memory
      FROM scheduler_usagehour
     WHERE hour >= %(since)s AND hour < %(until)s
    UNION ALL
    SELECT hour, pool.id, pool.name, department.id, department.name, project.id, project.name,
           coalesce(person.username, ''), held.gpu_milli::bigint * cardinality(held.devices) * lasted,
           held.cpu_milli * lasted, held.memory_mib * lasted
      FROM scheduler_allocation AS held
      JOIN pools_node AS node ON node.id = held.node_id
      JOIN pools_nodepool AS pool ON pool.id = node.pool_id
      JOIN projects_pod AS pod ON pod.id = held.pod_id
      JOIN projects_workload AS workload ON workload.id = pod.workload_id
      JOIN projects_project AS project ON project.id = workload.project_id
      JOIN projects_department AS department ON department.id = project.department_id
      LEFT JOIN auth_user AS person ON person.id = workload.submitted_by_id
     CROSS JOIN LATERAL generate_series(
           date_trunc('hour', greatest(held.bound_at, %(since)s)),
           least(%(now)s, %(until)s - interval '1 microsecond'), interval '1 hour') AS hour
     CROSS JOIN LATERAL (SELECT extract(epoch FROM
           least(%(now)s, hour + interval '1 hour') - greatest(held.bound_at, hour)) AS lasted) AS part
     WHERE held.released_at IS NULL AND lasted > 0
"""
# The price at the beginning of an hour applies to the whole hour.
PRICE_JOIN = """
      LEFT JOIN (SELECT pool_id AS priced_pool, until AS priced_until, lag(until, 1, '-infinity')
                          OVER (PARTITION BY pool_id ORDER BY until) AS priced_from
                   FROM pools_poolprice) AS past
        ON priced_pool = held.pool_id AND held.hour >= priced_from AND held.hour < priced_until"""
Prices = dict[tuple[int, datetime | None], Decimal | None]
STEP_STARTS = {step: f"date_trunc('{step}', hour, %(zone)s)" for step in ReportStep}
COLUMNS = {dimension: f"{dimension}_name" for dimension in UsageDimension}


def usage_report(actor: Actor, request: UsageRequest, now: datetime) -> list[UsageRow]:
    """Return the usage that the user may see, by period, and within a period by GPU-hours in descending
    order.
    """
    request = replace(request, since=floor_to_hour(request.since), until=min(request.until, now))
    prices: Prices = {}
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for at, *names, pool, pool_name, until, gpu, cpu, memory in _query_rows(actor, request, now):
        entry = sums.setdefault((at, *names), [0.0, 0.0, 0.0, Decimal(0), frozenset()])
        hours = float(gpu) / MILLI / HOUR
        entry[0] += hours
        entry[1] += float(cpu) / MILLI / HOUR
        entry[2] += float(memory) / MIB / HOUR
        price = _price_valid_until(pool, until, prices)
        entry[3] += (price or Decimal(0)) * Decimal(hours)
        if price is None and hours:
            entry[4] |= {pool_name}
    result = []
    for (at, *names), (gpu, cpu, memory, cost, unpriced) in sums.items():
        known_cost = cost.quantize(CENT)
        shown = dict(zip(request.group_by, names, strict=True))
        result.append(
            UsageRow(
                at, shown, gpu, cpu, memory, None if unpriced else known_cost, known_cost, frozenset(unpriced)
            )
        )
    return sorted(result, key=lambda used: (used.at or now, -used.gpu_hours, *used.names.values()))


def sum_rows(rows: Iterable[UsageRow]) -> UsageRow:
    """Return the sum of all rows. Its cost is None if any row's cost is None."""
    rows = list(rows)
    known_cost = sum((row.known_cost for row in rows), Decimal(0))
    unpriced = frozenset().union(*(row.unpriced for row in rows))
    return UsageRow(
        at=None,
        names={},
        gpu_hours=sum(row.gpu_hours for row in rows),
        cpu_hours=sum(row.cpu_hours for row in rows),
        memory_gib_hours=sum(row.memory_gib_hours for row in rows),
        cost=None if unpriced else known_cost,
        known_cost=known_cost,
        unpriced=unpriced,
    )


def _query_rows(actor: Actor, request: UsageRequest, now: datetime) -> Sequence[tuple[Any, ...]]:
    names = [COLUMNS[dimension] for dimension in request.group_by]
    piece = f"{STEP_STARTS[request.step]} AS piece" if request.step else "NULL::timestamptz AS piece"
    values: dict[str, Any] = {
        "since": request.since,
        "until": request.until,
        "now": now,
        "zone": request.time_zone.key,
    }
    conditions = [f"{COLUMNS[key]} = %(only_{key})s" for key in request.only]
    values |= {f"only_{key}": name for key, name in request.only.items()}
    if request.any_of:
        conditions.append(
            f"({' OR '.join(f'{COLUMNS[key]} = ANY(%(any_{key})s)' for key in request.any_of)})"
        )
        values |= {f"any_{key}": list(names) for key, names in request.any_of.items()}
    if not is_platform_admin(actor):
        conditions.append("(project_id = ANY(%(projects)s) OR department_id = ANY(%(departments)s))")
        values["projects"] = list(visible_projects(actor).values_list("pk", flat=True))
        values["departments"] = list(fully_visible_departments(actor).values_list("pk", flat=True))
    shown = ", ".join([piece, *names, "pool_id", "pool_name", "priced_until"])
    query = f"SELECT {shown}, sum(gpu), sum(cpu), sum(memory) FROM ({USAGE}) AS held{PRICE_JOIN}"  # noqa: S608
    if conditions:
        query += f" WHERE {' AND '.join(conditions)}"
    keys = ", ".join(str(number + 1) for number in range(len(names) + 4))
    with connection.cursor() as cursor:
        cursor.execute(f"{query} GROUP BY {keys}", values)
        return cursor.fetchall()


def floor_to_hour(at: datetime) -> datetime:
    """Round a time down to the start of its hour in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _price_valid_until(pool_id: int, until: datetime | None, cache: Prices) -> Decimal | None:
    """Return the price per GPU-hour that applied until `until`, or the current price if no price ended then.

    Return None if there is no price.
    """
    if (pool_id, until) not in cache:
        past = PoolPrice.objects.filter(pool_id=pool_id, until=until).first() if until else None
        pool = NodePool.objects.filter(pk=pool_id).first() if past is None else None
        now = current_price(pool) if pool is not None else None
        cache[pool_id, until] = now if past is None else past.price_per_gpu_hour
    return cache[pool_id, until]


MAX_PERIODS: Mapping[ReportStep | None, timedelta] = {
    ReportStep.HOUR: timedelta(days=31),
    ReportStep.DAY: timedelta(days=366),
    ReportStep.WEEK: timedelta(days=366 * 5),
    ReportStep.MONTH: timedelta(days=366 * 20),
    None: timedelta(days=366 * 20),
}
