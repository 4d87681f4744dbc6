"""Store queue statuses and settle usage ledgers after every cycle and every change."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models import Sum

from berth.db.queries.compiled import compiled_once
from berth.db.writes.bulk_rows import insert_rows, update_rows
from pools.models import Node, NodePool
from scheduler.engine.plan import QueueReport
from scheduler.loop.observe.view import ClusterView
from scheduler.loop.queries import POOLS
from scheduler.models import QueueStatus, Usage
from scheduler.reports.queues.group_quotas import quotas_by_queue, remaining_quotas
from scheduler.reports.queues.queue_totals import NOTHING, ZERO, Amounts3, Key, QueueTotals
from scheduler.reports.usage.decayed import RESOURCE_INDEXES, UsageRates, needs_settling, settle_ledger
from scheduler.reports.usage.window import store_points

STATUSES = compiled_once(lambda: QueueStatus.objects.select_related("project"))
LOCKED_USAGES = compiled_once(lambda: Usage.objects.select_for_update().order_by("pk"))
CAPACITY = compiled_once(
    lambda: (
        Node.objects.filter(state__in=("ready", "booting", "requested"))
        .order_by()
        .values_list("pool_id")
        .annotate(Sum("gpus"), Sum("cpu_milli"), Sum("memory_mib"))
    )
)
USAGE_INTERVAL = timedelta(seconds=60)  # minimum interval between writes while only the decayed usage changes
FIELDS = ["share", "allocated", "reserved", "requested", "usage", "at"]


def store_queue_statuses(
    view: ClusterView, reports: Iterable[QueueReport], totals: Mapping[Key, QueueTotals]
) -> int:
    """Store changed statuses in the caller's transaction, and return the number of rows written.

    `reports` contains fair shares and requests, and `totals` contains the queues' resources after the cycle.
    If only the decayed usage has changed, a status is stored at most once per minute.
    """
    stored = {_queue_key(row): row for row in STATUSES()}
    new, changed = [], []
    for report in reports:
        owner = view.queues.owners[report.queue]
        key = (None, owner.project_id) if owner.project_id is not None else (owner.department_id, None)
        pool = view.pools[report.pool].pk
        row, mine = stored.get((pool, key)), totals.get((pool, key), NOTHING)
        if row is None:
            row = QueueStatus(pool_id=pool, department_id=key[0], project_id=key[1])
            new.append(_update_row(row, report, mine, view.at))
        elif _has_changed(row, report, mine, view.at):
            changed.append(_update_row(row, report, mine, view.at))
    insert_rows(new)
    update_rows(changed, FIELDS)
    return len(new) + len(changed)


def settle_due_usage_ledgers(now: datetime, totals: Mapping[Key, QueueTotals]) -> int:
    """Update every usage ledger that is due, in the caller's transaction.

    Return the number of rows written.
    """
    pools = {pool.pk: pool for pool in POOLS()}
    rows = {_queue_key(row): row for row in LOCKED_USAGES()}
    rates = _rates_by_queue(pools, totals)
    changed, new = [], []
    for key in sorted(rows.keys() | rates.keys(), key=str):
        pool_id, (department, project) = key
        row, rate = rows.get(key), rates.get(key, UsageRates())
        if row is None:
            fresh = Usage(pool_id=pool_id, department_id=department, project_id=project, settled_at=now)
            fresh.used, fresh.parent, fresh.held = [0.0] * 3, [0.0] * 3, [0] * 3
            fresh.rate, fresh.parent_rate = [0.0] * 3, [0.0] * 3
            settle_ledger(fresh, pools[pool_id], now, rate)
            new.append(fresh)
        elif needs_settling(row, now, rate):
            settle_ledger(row, pools[pool_id], now, rate)
            changed.append(row)
    insert_rows(new)
    update_rows(changed, ["used", "parent", "held", "rate", "parent_rate", "settled_at"])
    store_points([*new, *changed], pools)
    return len(new) + len(changed)


def _rates_by_queue(
    pools: Mapping[int, NodePool], totals: Mapping[Key, QueueTotals]
) -> dict[Key, UsageRates]:
    allocated = {key: mine.allocated for key, mine in totals.items() if any(mine.allocated)}
    shares = _shares_by_queue()
    quotas, capacity = remaining_quotas(allocated, quotas_by_queue()), _capacity_by_pool()
    result = {}
    for key in allocated.keys() | shares.keys():
        pool_id, _ = key
        mine = allocated.get(key, ZERO)
        above = (
            capacity.get(pool_id, ZERO)
            if key[1][0] is not None
            else shares[key][1]
            if key in shares
            else ZERO
        )
        quota = quotas.get(key, (0, None, None))
        charged = (
            mine
            if pools[pool_id].count_all
            else tuple(_amount_over_quota(mine[k], quota[k]) for k in RESOURCE_INDEXES)
        )
        result[key] = UsageRates(
            mine,
            (float(charged[0]), float(charged[1]), float(charged[2])),
            (float(above[0]), float(above[1]), float(above[2])),
        )
    return result


def _amount_over_quota(allocated: int, quota: int | None) -> int:
    return 0 if quota is None else max(0, allocated - quota)


def _shares_by_queue() -> dict[Key, tuple[Amounts3, Amounts3]]:
    """Return (queue's share, parent's share) for each queue."""
    rows = list(STATUSES())
    department_shares = {
        (row.pool_id, row.department_id): _to_amounts(row.share) for row in rows if row.project is None
    }
    return {
        _queue_key(row): (
            _to_amounts(row.share),
            department_shares.get((row.pool_id, row.project.department_id), ZERO) if row.project else ZERO,
        )
        for row in rows
    }


def _capacity_by_pool() -> dict[int, Amounts3]:
    return {pool: (gpus * 1000, cpu_milli, memory_mib) for pool, gpus, cpu_milli, memory_mib in CAPACITY()}


def _queue_key(row: QueueStatus | Usage) -> Key:
    return row.pool_id, (row.department_id, row.project_id)


def _to_amounts(values: Iterable[int]) -> Amounts3:
    a, b, c = values
    return a, b, c


def _has_changed(row: QueueStatus, report: QueueReport, totals: QueueTotals, now: datetime) -> bool:
    stored = (tuple(row.share), tuple(row.allocated), tuple(row.reserved), tuple(row.requested))
    reported = (tuple(report.share), totals.allocated, totals.reserved, tuple(report.requested))
    return stored != reported or (tuple(row.usage) != report.usage and now - row.at >= USAGE_INTERVAL)


def _update_row(row: QueueStatus, report: QueueReport, totals: QueueTotals, now: datetime) -> QueueStatus:
    row.share, row.requested = list(report.share), list(report.requested)
    row.allocated, row.reserved = list(totals.allocated), list(totals.reserved)
    row.usage, row.at = list(report.usage), now
    return row
